"""If a platform's room has an oracle for a family, only the oracle's codes are correct."""

from dataclasses import replace
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
from plugin_sandbox import failing, sandbox, target

from quantizer.conformance.checks import room_oracles
from quantizer.conformance.generation.builder import build_case
from quantizer.conformance.generation.choice_sources import HashChoices
from quantizer.conformance.generation.hashing import key
from quantizer.conformance.setup.options import Options
from quantizer.conformance.setup.session import open_session
from quantizer.conformance.spec_checks import platform_trials
from quantizer.conformance.spec_checks.platform_trials import _of_operator
from quantizer.conformance.trials.trial import Trial
from quantizer.core.library import load_library
from quantizer.core.rooms import Oracle
from quantizer.numerics.qparams import Staged
from quantizer.ops import REGISTRY, load_built_ins
from quantizer.runtime.engines.builtin import BuiltinEngine

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(autouse=True)
def alone():
    load_built_ins()
    with sandbox():
        yield


def softmax():
    return target(load_library(), "softmax", "a8", "ort")


def test_one_code_off_the_oracle_fails():
    own = REGISTRY.get("softmax", "quantized", "ort")

    def beside(x, *, parameters, axis):
        codes = own(x, parameters=parameters, axis=axis).codes.clone()
        codes.view(-1)[0] += 1 if codes.view(-1)[0] < parameters.outputs["y"].qmax else -1
        return Staged(codes, {})

    assert failing(softmax(), 5) == {}
    with REGISTRY.overridden("softmax", "quantized", beside, "ort"):
        assert "arithmetic" in failing(softmax(), 5)


def test_only_the_oracle_decides(monkeypatch):
    found = room_oracles.oracle_of
    monkeypatch.setattr(room_oracles, "oracle_of", lambda *asked: replace(found(*asked), codes=f"{__name__}:largest"))
    assert "arithmetic" in failing(softmax(), 5)


def largest(asked):
    return asked.codes["x"] * 0 + asked.output.qmax


def test_an_oracle_error_bound_widens_only_accuracy(monkeypatch):
    monkeypatch.setattr(
        room_oracles, "oracle_of", lambda *_: Oracle("addition", f"{__name__}:nothing", lost=f"{__name__}:ten")
    )
    own = REGISTRY.get("add", "quantized", "ideal")

    def shifted(a, b, *, parameters):
        out = parameters.outputs["y"]
        return (own(a, b, parameters=parameters) + 9).clamp(out.qmin, out.qmax)

    with REGISTRY.overridden("add", "quantized", shifted, "ideal"):
        found = failing(target(load_library(), "add", "a8", "ideal"), 5)
    assert "arithmetic" in found and "accuracy" not in found


def nothing(asked):  # noqa: ARG001 - as an oracle is called
    return None


def ten(asked):  # noqa: ARG001 - as an oracle is called
    return 10.0


def test_lint_names_the_function_that_an_oracle_needs(monkeypatch):
    session = open_session(Options(root=ROOT))
    assert [*_of_operator(session, "ideal", "relu")] == []
    for module in (room_oracles, platform_trials):
        monkeypatch.setattr(module, "oracle_of", lambda *_: Oracle("rectifier", f"{__name__}:largest"))
    problem, *_ = _of_operator(session, "ideal", "relu")
    assert "arithmetic: " in problem
    assert problem.endswith(
        ". The room has an oracle of rectifier and no function of relu. "
        'Register the room\'s own with @operator("relu", kind="quantized", platform="ideal").'
    )


@pytest.mark.parametrize(("op", "scheme"), [("conv2d", "w8a8"), ("avg_pool2d", "a8")])
def test_an_oracle_is_given_the_exact_sums(monkeypatch, op, scheme):
    """With them it states a chip's own requantization, here the exact one, in a line."""
    family = load_library().specs[op].quantization.family
    monkeypatch.setattr(room_oracles, "oracle_of", lambda *_: Oracle(family, f"{__name__}:rounded"))
    assert failing(target(load_library(), op, scheme, "ideal"), 3) == {}
    own = REGISTRY.get(op, "quantized", "ideal")

    def beside(*operands, parameters, **attributes):
        return (own(*operands, parameters=parameters, **attributes) - 1).clamp_min(parameters.outputs["y"].qmin)

    with REGISTRY.overridden(op, "quantized", beside, "ideal"):
        assert "arithmetic" in failing(target(load_library(), op, scheme, "ideal"), 3)


def rounded(asked):
    products = [Fraction(float(asked.grids["x"].scale)) / Fraction(float(asked.output.scale))]
    if "weight" in asked.grids:
        weights = np.broadcast_to(asked.grids["weight"].scale, asked.shape[1])
        products = [products[0] * Fraction(float(scale)) for scale in weights]
    codes = np.empty(asked.shape, np.int64)
    for place in np.ndindex(*asked.shape):
        ratio = products[place[1] % len(products)]
        codes[place] = round(int(asked.sums[place]) * ratio / int(asked.terms[place]))
    return codes + int(asked.output.zero_point)


def test_an_oracle_of_sums_refuses_operators_without_sums(monkeypatch):
    monkeypatch.setattr(room_oracles, "oracle_of", lambda *_: Oracle("softmax", f"{__name__}:of_sums"))
    assert "has no sums of products and no windows" in failing(softmax(), 1)["arithmetic"][0].reason


def of_sums(asked):
    return asked.sums


@pytest.mark.parametrize(
    ("op", "scheme", "axis"), [("global_avg_pool2d", "a8", 1), ("conv2d", "w8a8", 1), ("reduce_mean", "a8", None)]
)
def test_an_oracle_is_given_the_axis_of_channels(op, scheme, axis):
    chosen = target(load_library(), op, scheme, "tflite_builtin")
    trial = Trial(chosen, build_case(chosen, HashChoices(key(0, chosen.id), {})), BuiltinEngine())
    assert room_oracles.asked(trial, {}).channels == axis
