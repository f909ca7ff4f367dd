"""Float32 arithmetic in any order: codes of every order pass, one code off fails."""

import copy

import numpy as np
import pytest
import torch

from quantizer.conformance.checks.accuracy import accuracy
from quantizer.conformance.checks.arithmetic import arithmetic
from quantizer.conformance.checks.enclosed import exact_in_any_order
from quantizer.conformance.checks.invariance import owed
from quantizer.conformance.generation.builder import build_case
from quantizer.conformance.generation.choice_sources import HashChoices
from quantizer.conformance.setup.options import Options
from quantizer.conformance.target import Target
from quantizer.conformance.trials.trial import Trial
from quantizer.core.library import load_library
from quantizer.numerics.qparams import Staged
from quantizer.ops import load_built_ins
from quantizer.runtime.engines.builtin import BuiltinEngine

load_built_ins()
LIBRARY = load_library()
FLOATS = np.float32


def trial(op, scheme, seed, data="random"):
    target = Target(LIBRARY.spec(op), LIBRARY.scheme(scheme), LIBRARY.platform("float32_any_order"))
    return Trial(target, build_case(target, HashChoices(seed, {"data": data, "activation": "none"})), BuiltinEngine())


def given(trial, codes):
    trial.outcome = Staged(torch.from_numpy(codes.astype(np.int64)), {})
    return trial


def quantized(trial, real):
    """Return codes of float32 numbers as QuantizeLinear makes them."""
    scale, output = FLOATS(float(trial.output.scale)), trial.output
    codes = np.rint(real.astype(FLOATS) / scale) + int(output.zero_point)
    return np.clip(codes, output.qmin, output.qmax)


def in_some_order(trial, seed):
    """Return a fully connected layer in float32, its terms added in an order of the seed's, one after the other or as a tree."""
    x, w = (trial.values[name].numpy().astype(FLOATS) for name in ("x", "weight"))
    terms = x[:, None, :] * w[None, :, :]
    if "bias" in trial.values:
        bias = np.broadcast_to(trial.values["bias"].numpy().astype(FLOATS), terms.shape[:2])
        terms = np.concatenate([terms, bias[:, :, None]], 2)
    order = sorted(range(terms.shape[2]), key=lambda i: (i * 7919 + seed * 104729) % 1009)
    terms = terms[:, :, order]
    while seed % 2 and terms.shape[2] > 1:
        half = terms.shape[2] // 2
        terms = np.concatenate([terms[:, :, :half] + terms[:, :, half : 2 * half], terms[:, :, 2 * half :]], 2)
    total = np.zeros(terms.shape[:2], FLOATS)
    for i in range(terms.shape[2]):
        total = total + terms[:, :, i]
    return total


@pytest.mark.parametrize("data", ["random", "ties", "corners"])
def test_codes_of_any_addition_order_pass(data):
    elements = 0
    for seed in range(40):
        made = trial("fully_connected", "w8a8", seed, data)
        for order in range(4):
            judged = given(made, quantized(made, in_some_order(made, order)))
            for check in (arithmetic, accuracy):
                verdict = check(judged)
                assert not verdict.failing, (seed, order, verdict)
            elements += judged.got.size
    assert elements > 1000


def test_one_code_off_fails_in_any_order():
    caught = total = 0
    for seed in range(20):
        made = trial("fully_connected", "w8a8", seed)
        codes = quantized(made, in_some_order(made, 0))
        inner = (codes > made.output.qmin + 1) & (codes < made.output.qmax - 1)
        wrong = given(made, np.where(inner, codes + 1, codes))
        verdict = arithmetic(wrong)
        caught, total = caught + verdict.failed, total + int(inner.sum())
    assert total > 50 and caught == total


@pytest.mark.parametrize(("op", "scheme"), [("add", "a8"), ("max_pool2d", "a8"), ("softmax", "a8"), ("sigmoid", "a8")])
def test_intervals_are_one_code_wide_but_for_ties(op, scheme):
    widths = []
    for seed in range(10):
        made = trial(op, scheme, seed)
        assert not arithmetic(made).failing
        low, high = owed(made)
        widths.append((high - low).ravel())
    assert np.concatenate(widths).mean() < 0.02


def test_float32_any_order_is_judged_only_on_request():
    assert "float32_any_order" not in Options(root=None).library().platforms
    assert "float32_any_order" in Options(root=None, platforms=("float32_any_order",)).library().platforms


def powers_of_two(op, scheme, seed, data="ties"):
    """Return a trial whose scales are powers of two, or None if the case has others."""
    made = trial(op, scheme, seed, data)
    scales = [np.asarray(made.qparams(name).scale) for name in made.codes] + [np.asarray(made.output.scale)]
    return made if all((np.frexp(scale)[0] == 0.5).all() for scale in scales) else None


@pytest.mark.parametrize(("op", "scheme"), [("fully_connected", "w8a8_pow2"), ("add", "a8_pow2"), ("relu", "a8_pow2")])
def test_power_of_two_scales_have_one_code_in_any_order(op, scheme):
    ties = 0
    for seed in range(60):
        made = powers_of_two(op, scheme, seed)
        if made is None:
            continue
        assert not arithmetic(made).failing
        exact = exact_in_any_order(made)
        low, high = owed(made)
        assert (low == high)[exact].all()
        position = made.y_hat / float(made.output.scale)
        ties += int((exact & (np.abs(position % 1) == 0.5)).sum())
        if op == "fully_connected":
            for order in range(4):
                real = in_some_order(made, order)
                assert (real[exact] == made.y_hat[exact]).all() or made.case.activation != "none"
    assert ties > 10


def test_a_sum_beyond_the_whole_numbers_of_float32_may_round():
    made = next(found for seed in range(60) if (found := powers_of_two("fully_connected", "w8a8_pow2", seed)))
    wide = copy.copy(made)
    wide.__dict__ |= {"values": {name: values * 2.0**20 for name, values in made.values.items()}}
    assert exact_in_any_order(made).all() and not exact_in_any_order(wide).all()


def test_half_up_fails_if_no_order_of_addition_rounds():
    red = 0
    for seed in range(60):
        made = powers_of_two("add", "a8_pow2", seed)
        if made is not None:
            position = made.y_hat / float(made.output.scale)
            up = np.floor(position + 0.5) + int(made.output.zero_point)
            red += arithmetic(given(made, np.clip(up, made.output.qmin, made.output.qmax))).failing
    assert red > 5
