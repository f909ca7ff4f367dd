"""Layer normalisation: exact arithmetic against rationals and torch, Compass's numbers, and what its formats allow."""

from __future__ import annotations

import math
from decimal import Decimal, localcontext
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
import torch
from plugin_sandbox import failing, open_library, sandbox, write

from quantizer.conformance.checks.norm_interval import normalized_interval, table_error
from quantizer.conformance.checks.normalization import normalization_arithmetic
from quantizer.conformance.expected import norms as expected_norm
from quantizer.conformance.generation.builder import build_case, covering_rows_by_id
from quantizer.conformance.generation.choice_sources import HashChoices
from quantizer.conformance.generation.hashing import key, uniform
from quantizer.conformance.judging.judge import judge
from quantizer.conformance.setup.options import Options
from quantizer.conformance.setup.readings import with_readings
from quantizer.conformance.setup.session import open_session
from quantizer.conformance.target import Target
from quantizer.conformance.trials.trial import Trial
from quantizer.numerics.qparams import Staged
from quantizer.numerics.roots import inverse_root_table, quotient, square_root, table_inverse_root
from quantizer.numerics.rounding import round_scalar, splitmix64
from quantizer.numerics.rules import effective_bits
from quantizer.ops.layer_norm import reference

SESSION = open_session(Options(root=Path.cwd()))
SPEC = SESSION.library.spec("layer_norm")
TARGETS = {target.id: target for target in SESSION.all_targets(SPEC)}
MODES = ("half_even", "half_up", "half_down", "half_away", "half_toward_zero", "up", "down", "toward_zero")


def hashed(count: int, bits: int, seed: int = 0) -> list[int]:
    """Return whole numbers of one to *bits* bits."""
    values = splitmix64(torch.arange(count) + (seed << 32))
    return [max(1, (value & ((1 << 62) - 1)) >> (62 - 1 - value % bits)) for value in values.tolist()]


def trials(target: Target, count: int, salt: str) -> list[Trial]:
    found = covering_rows_by_id(SPEC, list(TARGETS), target.id) + [{}]
    cases = (build_case(target, HashChoices(key(i, salt, target.id), found[i % len(found)])) for i in range(count))
    return [Trial(target, case, SESSION.engine) for case in cases]


@pytest.mark.parametrize("offset", [Fraction(0), Fraction(1e-12), Fraction(37, 10), Fraction(1e30), Fraction(1e-30)])
def test_square_roots_are_floored_to_32_bits(offset: Fraction) -> None:
    squares = [0, 1, 2, 3, 4, (1 << 52) - 1, *hashed(2000, 52)]
    for square, mantissa, exponent in zip(
        squares, *(t.tolist() for t in square_root(torch.tensor(squares), offset)), strict=True
    ):
        if square + offset == 0:
            assert mantissa == 0
            continue
        assert 1 << 31 <= mantissa < 1 << 32
        assert mantissa**2 <= (square + offset) * Fraction(4) ** exponent < (mantissa + 1) ** 2


@pytest.mark.parametrize("mode", MODES)
def test_quotients_are_rounded_once(mode: str) -> None:
    squares = torch.tensor([4, 1 << 40, *hashed(600, 50)])
    mantissa, exponent = square_root(squares, Fraction(0))
    tops = torch.tensor(hashed(len(squares), 27, 1)) * (1 - 2 * (torch.arange(len(squares)) % 2))
    tops[:2] = torch.tensor([3, -5])
    got = quotient(tops, mantissa, exponent, mode)  # type: ignore[arg-type]
    for top, root, places, found in zip(*(t.tolist() for t in (tops, mantissa, exponent, got)), strict=True):
        assert found == round_scalar(Fraction(top) * Fraction(2) ** (30 + places) / root, mode)  # type: ignore[arg-type]
    ties = quotient(torch.tensor([1, -1, 3, -3]), torch.tensor(1 << 31), torch.tensor(0), mode)  # type: ignore[arg-type]
    assert ties.tolist() == [round_scalar(Fraction(top, 2), mode) for top in (1, -1, 3, -3)]  # type: ignore[arg-type]


def test_the_table_of_inverse_roots_errs_by_no_more_than_its_format() -> None:
    values = torch.tensor([*range(1, 3000), *hashed(20_000, 30)])
    wanted = 2.0**31 / torch.sqrt(values.double())
    allowed = table_error(193, 16) * wanted + 2
    assert bool(((table_inverse_root(values, inverse_root_table()) - wanted).abs() <= allowed).all())
    assert table_inverse_root(torch.tensor([0]), inverse_root_table()).tolist() == [32767 << 16]


def assert_near_torch(got: torch.Tensor, x: torch.Tensor, gamma: torch.Tensor, beta: torch.Tensor, epsilon: float):
    """Two sums of n terms may differ by the rounding of each: n * u of the largest, divided by the deviation.

    Higham, Accuracy and Stability of Numerical Algorithms, 3.1: a sum of n terms errs by (n - 1) * u of their magnitudes.
    """
    axes, terms, unit = tuple(range(-gamma.dim(), 0)), gamma.numel(), torch.finfo(x.dtype).eps / 2
    wanted = torch.nn.functional.layer_norm(x, gamma.shape, gamma, beta, epsilon)
    deviation = torch.sqrt(x.var(axes, correction=0, keepdim=True) + epsilon)
    places = (terms + 4) * unit * (x.abs().amax(axes, keepdim=True) / deviation + 1)
    allowed = 2 * gamma.abs() * places * (1 + (x - x.mean(axes, keepdim=True)).abs() / deviation)
    assert bool(((got - wanted).abs() <= allowed + 4 * unit * (wanted.abs() + beta.abs())).all())


def test_the_layer_norm_reference_equals_torch() -> None:
    x, gamma, beta = (torch.from_numpy(uniform(7, "x", s) * 4 - 2) for s in ((3, 4, 5, 6), (5, 6), (5, 6)))
    for axis in (2, -2):
        assert_near_torch(reference(x, gamma, beta, axis=axis, epsilon=1e-3), x, gamma, beta, 1e-3)
    one, none = torch.ones(6, dtype=x.dtype), torch.zeros(6, dtype=x.dtype)
    assert_near_torch(reference(x, axis=3, epsilon=1e-5), x, one, none, 1e-5)
    single = reference(x.float(), gamma.float(), beta.float(), axis=2, epsilon=1e-3)
    assert_near_torch(single, x.float(), gamma.float(), beta.float(), 1e-3)


@pytest.mark.parametrize("name", [name for name in TARGETS if name.endswith("ideal")])
def test_ideal_layer_norm_codes_equal_rounded_rationals(name: str) -> None:
    """Mean and variance as fractions, the root with 60 digits: half a code, and 2**-20 for a root of 32 bits."""
    for trial in trials(TARGETS[name], 40, "rational"):
        params, output = trial.parameters.inputs["x"], trial.output
        centred = trial.codes["x"] - params.zero_point
        axis = int(trial.case.attrs["axis"]) % centred.dim()
        count = math.prod(centred.shape[axis:])
        flat = centred.reshape(-1, count).tolist()
        scale, step = Fraction(float(params.scale)), Fraction(float(output.scale))
        affine = {k: v.expand(centred.shape[axis:]).reshape(-1).tolist() for k, v in trial.values.items() if k != "x"}
        got = trial.outcome.codes.reshape(-1, count).tolist()
        for line, codes in zip(flat[:6], got, strict=False):
            mean = Fraction(sum(line), count)
            square = sum((value - mean) ** 2 for value in line) / count * scale**2 + Fraction(
                float(trial.bound["epsilon"])
            )
            with localcontext() as context:
                context.prec = 60
                root = Fraction((Decimal(square.numerator) / Decimal(square.denominator)).sqrt())
            for place, (value, code) in enumerate(zip(line, codes, strict=True)):
                real = (value - mean) * scale / root * Fraction(affine["gamma"][place] if "gamma" in affine else 1)
                real = (real + Fraction(affine["beta"][place] if "beta" in affine else 0)) / step + int(
                    output.zero_point
                )
                away = abs(min(max(real, Fraction(output.qmin)), Fraction(output.qmax)) - code)
                assert away <= Fraction(1, 2) + Fraction(1, 1 << 20)


@pytest.mark.parametrize("name", TARGETS)
def test_random_cases_raise_no_alarm_with_or_without_stages(name: str) -> None:
    """Nothing fails outside the conditions of Compass's declared defects (8 bits, tiny epsilon, five elements)."""
    target = TARGETS[name]
    for trial in trials(target, 60, "alarm"):
        verdicts = judge(trial)
        assert not [v.check for v in verdicts if v.failing], trial.case.to_json()
        count = math.prod(trial.case.shapes["x"][int(trial.case.attrs["axis"]) :])
        exact = target.platform.platform == "ideal"
        if exact or (target.scheme.activation.bits <= 8 and count > 4):
            bare = Trial(target, trial.case, SESSION.engine)
            bare.__dict__["outcome"] = Staged(trial.outcome.codes, {})
            assert not normalization_arithmetic(bare).failing, trial.case.to_json()
            if exact or float(trial.bound["epsilon"]) < 1e-10:
                # Zero points are cut to symmetric codes, whatever the operator.
                shown = {v.reason.partition(":")[0] for v in verdicts if v.status == "defect"}
                assert shown <= {"clamped_zero_point"}, trial.case.to_json()


@pytest.mark.parametrize("count", [*range(1, 70), 127, 128, 129, 768, 1000, 4096, 4097])
@pytest.mark.parametrize("name", ["layer_norm-w8a8-compass", "layer_norm-w16a16-compass"])
def test_compass_numbers_are_restated(name: str, count: int) -> None:
    target = TARGETS[name]
    case = build_case(target, HashChoices(1, {"with_gamma": "no", "with_beta": "no"}))
    case = case.but(shapes={"x": (1, count)}, attrs={"axis": 1, "epsilon": 1e-5})
    provided = Trial(target, case, SESSION.engine).parameters.numbers
    assert provided == expected_norm.table_numbers(count, target.scheme, target.platform)


def test_cleared_bits_of_a_bias_are_restated() -> None:
    for seed in range(300):
        codes = torch.tensor(hashed(9, 47, seed)) * (1 - 2 * (torch.arange(9) % 2))
        assert effective_bits(codes, 32).tolist() == expected_norm.effective(codes.numpy(), 32).tolist()
    assert effective_bits(torch.tensor([1 << 31, 5]), 32).tolist() == [1 << 31, 4]
    assert effective_bits(torch.tensor([(1 << 31) - 1, 5]), 32).tolist() == [(1 << 31) - 1, 5]


def test_the_16_bit_interval_contains_every_root_rounding() -> None:
    """An integer forward with 15 significant bits of inverse root and factor passes, however they are rounded."""
    target = TARGETS["layer_norm-w16a16-compass"]
    for trial in trials(target, 200, "format"):
        codes = trial.codes["x"].numpy().astype(np.float64)
        axes = tuple(range(int(trial.case.attrs["axis"]) % codes.ndim, codes.ndim))
        count = math.prod(codes.shape[i] for i in axes)
        mean = np.rint(codes.mean(axis=axes, keepdims=True))
        variance = np.floor(((codes - mean) ** 2).mean(axis=axes, keepdims=True))
        steps = 1.0 / float(expected_norm.normalized(count, target.scheme, target.platform).scale)
        low, high = normalized_interval(trial, declared=True)
        for relative in (-1.0, 0.0, 1.0):
            root = np.minimum(1.0, 1.0 / np.sqrt(np.maximum(variance, 1.0))) * (1 + relative * table_error(193, 16) / 2)
            factor = root * (1 + relative * 2.0**-15) ** 2 * steps
            normal = np.clip(np.rint(2 * np.floor((codes - mean) / 2) * factor), -32768, 32767)
            assert bool(((low <= normal) & (normal <= high)).all())


PLUGIN = """
    @op_register(OpType.LayerNorm, '2.0')
    def norm_forward(self, *args):
        x, out, axis = self.inputs[0].betensor, self.outputs[0], self.get_param('axis')
        w = self.constants['weights'].betensor if 'weights' in self.constants else 1
        b = self.constants['biases'].betensor if 'biases' in self.constants else 0
        x = x.double() if self.quantized else x
        mean = x.mean(axis, keepdim=True)
        mean = mean.round() if self.quantized else mean
        var = ((x - mean) ** 2).mean(axis, keepdim=True)
        if not self.quantized:
            out.betensor = (x - mean) / torch.sqrt(var + self.get_param('epsilon')) * w + b
            return
        x_scale = float(self.inputs[0].scale)
        count = x[0].numel() * x.shape[0] / var.numel()
        end = 1 << (out.qbits - 1)
        normal = (x - mean) / torch.sqrt(var + self.get_param('epsilon') * x_scale ** 2) * end / count ** 0.5
        acc = normal.round().clamp(-end, end - 1) * w + b
        numbers = [
            self.constants[k].betensor if k in self.constants else self.get_param(k + '_value') for k in ('scale', 'shift')
        ]
        out.betensor = linear_requantize(acc, *numbers, out.zerop, out.qmin, out.qmax)

    @quant_register(OpType.LayerNorm, '2.0')
    def norm_quantize(self, *args):
        x, out = self.inputs[0], self.outputs[0]
        mode, bits = self.get_attrs('q_mode_activation'), self.get_attrs('q_bits_activation')
        out.qbits, out.qinvariant = bits, False
        out.scale, out.zerop, out.qmin, out.qmax, out.dtype = get_linear_quant_params_from_tensor(
            out, mode, bits, is_signed=True)
        normal = PyTensor('normal')
        count = 1
        for axis in self.get_param('axis'):
            count = count * x.betensor.shape[axis]
        normal.min, normal.max = -count ** 0.5, count ** 0.5
        steps, _, _, _, _ = get_linear_quant_params_from_tensor(normal, mode, bits, is_signed=True)
        if 'weights' in self.constants:
            w = self.constants['weights']
            w.qbits, w.qinvariant = self.get_attrs('q_bits_weight'), False
            w.scale, w.zerop, w.qmin, w.qmax, w.dtype = get_linear_quant_params_from_tensor(
                w, self.get_attrs('q_mode_weight'), w.qbits, is_signed=True)
            w.betensor = linear_quantize_clip(w.betensor, w.scale, w.zerop, w.qmin, w.qmax)
            steps = steps * w.scale
        if 'biases' in self.constants:
            b = self.constants['biases']
            b.qbits, b.qinvariant = self.get_attrs('q_bits_bias'), False
            b.scale, b.zerop, b.qmin, b.qmax = steps, 0, -2 ** (b.qbits - 1), 2 ** (b.qbits - 1) - 1
            b.dtype = bits2dtype(b.qbits, is_signed=True)
            b.betensor = linear_quantize_clip(b.betensor, b.scale, b.zerop, b.qmin, b.qmax)
        m, mt, n, nt = get_scale_approximation_params(out.scale / steps, bits)
        if isinstance(m, torch.Tensor) and m.numel() > 1:
            for key, values, kind in (('scale', m, Dtype.UINT16), ('shift', n, Dtype.INT8)):
                self.constants[key] = PyTensor(key, values.numpy().astype(dtype2nptype(kind)))
                self.constants[key].dtype = kind
        else:
            self.params['scale_value'], self.params['shift_value'] = int(m), int(n)
"""


def test_a_plugin_without_stages_is_judged_by_accumulated_stage_errors(tmp_path: Path) -> None:
    """Under the reading that hides them. It keeps epsilon, which Compass's own integer path ignores: then no defect is needed to excuse it."""
    with sandbox():
        library = open_library(write(tmp_path, "norm.py", PLUGIN))
        plain = Target(library.spec("layer_norm"), library.scheme("w8a8"), library.platform("compass"))
        assert "parameters" in failing(plain, 3), "the platform's rule provides a table and numbers of its stages"
        spec = with_readings(library, ["layer_norm/compass:undisclosed_stages"]).spec("layer_norm")
        judged = [Target(spec, library.scheme(s), library.platform("compass")) for s in ("w8pta8", "w8a8")]
        assert [failing(target, 30) for target in judged] == [{}, {}]
        worse = PLUGIN.replace("'2.0'", "'2.1'").replace("acc = normal.round()", "acc = 2 + normal.round()")
        open_library(write(tmp_path, "worse.py", worse))
        assert "arithmetic" in failing(judged[0], 30)
