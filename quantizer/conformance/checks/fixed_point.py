"""Fixed-point requantization, second implementation: integer formulas of all variants, limits of shifts."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from quantizer.conformance.bounds.rounding import rational_codes
from quantizer.conformance.checks.multiplier_rules import equal, fixed_point_bits
from quantizer.conformance.expected import multipliers as expected_multipliers
from quantizer.conformance.trials.elements import judge_equal
from quantizer.conformance.trials.finding import Finding
from quantizer.conformance.trials.trial import Trial
from quantizer.core.families import OWN_MULTIPLIERS
from quantizer.core.platforms import computed_activation
from quantizer.core.verdict import Verdict
from quantizer.numerics.qparams import Rescale

Array = NDArray[Any]
Detail = Callable[[tuple[int, ...]], Mapping[str, str]]
CHECK = "arithmetic"
NUDGES: Mapping[str, tuple[int, int]] = {
    "q31_single": (0, 0),
    "q15_single": (0, 0),
    "q31_double": (1 << 30, -(1 << 30)),
}
"""Variant -> the addend of a first rounding at 2**31 if the product is shifted further: for sums >= 0, and < 0."""
INT64 = 1 << 62

FORM = "the multiplier and the shift of the platform's form"


def rounded(sums: Array, mantissa: Array | int, shift: Array | int, variant: str) -> Array:
    """Return floor((sum * mantissa + 2**(shift - 1) + nudge) / 2**shift), the nudge where shift > 31.

    It follows from a high multiply and a shift, since two floors in a row equal one floor.
    """
    whole = np.asarray(sums).astype(np.int64)
    m, s = np.asarray(mantissa).astype(np.int64), np.asarray(shift).astype(np.int64)
    # Python's integers, where a product may leave int64
    if int(np.abs(whole).max(initial=0)) * int(m.max(initial=0)) >= INT64:
        whole, m, s = whole.astype(object), m.astype(object), s.astype(object)
    above, below = NUDGES[variant]
    nudge = np.where(s > 31, np.where(whole >= 0, above, below), 0)
    return np.asarray((whole * m + (1 << (s - 1)) + nudge) >> s)


def judge_rounded(trial: Trial, numbers: Array, made_of: str, detail: Detail | None = None) -> Verdict:
    """Judge codes against whole *numbers* plus the zero point, clamped by the fused activation and to the codes."""
    output, cut = trial.output, computed_activation(trial.target.platform, trial.case.activation)
    zero, low, high = int(output.zero_point), output.qmin, output.qmax
    # clamping codes is clamping real numbers: rounding is monotone and takes 0 to the zero point
    if cut != "none":
        low = max(low, zero)
    if cut == "relu6":
        six = Fraction(6) / Fraction(float(output.scale))
        high = min(high, rational_codes(six, trial.target.platform.rounding)[0] + zero)
    wanted = np.asarray(np.clip(numbers + zero, low, high), np.int64)  # without axes, clip gives an int
    return judge_equal(CHECK, trial, trial.got, wanted, made_of, detail=detail)


def judge_widened(trial: Trial, rescale: Rescale, parts: Mapping[str, Array]) -> Verdict:
    """Judge a sum that rescales each operand to a common scale, rounds it, and then adds."""
    total = np.zeros(trial.output_shape, dtype=np.int64)
    zeros = {name: values * 0 for name, values in trial.centred.items()}
    for name, part in parts.items():
        # the reference of ones in one operand and zeros elsewhere is the sign with which it enters the sum
        sign = np.rint(trial.reference({**zeros, name: zeros[name] + 1}))
        mantissa, shift = expected_multipliers.as_multiplier(Fraction(rescale.factors[name]))
        # a kernel rounds the operand itself and then subtracts it, so the sign comes off before rounding
        total = total + sign * rounded(sign * part, mantissa, shift, str(rescale.operands))
    numbers = rounded(total, rescale.mantissa.numpy(), rescale.shift.numpy(), rescale.variant)
    return judge_rounded(
        trial,
        numbers,
        f"{rescale.variant} of the sum of operands that are rounded once each",
        lambda i: {f"from {n}": str(int(p[i])) for n, p in parts.items()} | {"sum": str(int(total[i]))},
    )


def judge_clamped(trial: Trial, rescale: Rescale) -> Verdict:
    """Judge a function that rescales codes and then clamps them between provided bounds (centred codes)."""
    (name,) = trial.centred
    mantissa, shift = expected_multipliers.as_multiplier(Fraction(rescale.factors[name]))
    numbers, c = trial.parameters.numbers, trial.centred[name].numpy()
    whole = rounded(c, mantissa, shift, rescale.variant)
    return judge_rounded(
        trial,
        np.clip(whole, numbers["least"], numbers["most"]),
        "the provided multiple, rounded once, between the bounds",
    )


@dataclass(frozen=True)
class _Wanted:
    """What a rule with a limited range of shifts provides."""

    multipliers: list[tuple[int, int]]
    factors: Mapping[str, tuple[int, int]] = field(default_factory=dict)
    """The multiplier of each operand that is rescaled before the sum."""
    operands: str | None = None
    """How these operands are rounded."""


def number_findings_of_shifts(trial: Trial, rescale: Rescale) -> Iterator[Finding]:
    """Yield findings on multipliers of a limited range of shifts: each equals the rule's, bit for bit."""
    if rescale.variant == "area_reciprocal":
        yield equal("factors", {}, dict(rescale.factors), "the number of terms alone decides")
    wanted = _wanted(trial, rescale)
    yield from _factors(rescale, wanted.factors)
    yield equal("rounding of operands", wanted.operands, rescale.operands, "as the platform's sums have it")
    pairs = zip(rescale.mantissa.reshape(-1).tolist(), rescale.shift.reshape(-1).tolist(), strict=True)
    for channel, (expected, got) in enumerate(zip(wanted.multipliers, pairs, strict=True)):
        yield equal(f"multiplier[{channel}]", (float(expected[0]), expected[1]), got, FORM)
    yield from _bounds(trial)


def _wanted(trial: Trial, rescale: Rescale) -> _Wanted:
    inputs = {n: p for n, p in trial.parameters.inputs.items() if trial.spec.inputs[n].kind != "index"}
    output, kind = float(trial.output.scale), trial.spec.error_model.kind
    if rescale.variant == "area_reciprocal":
        return _Wanted([(1, 0)])
    if kind == "bilinear":
        return _Wanted(_of_products(trial, rescale.mantissa.numel()))
    if len(inputs) > 1 and trial.spec.quantization.family not in OWN_MULTIPLIERS:
        return _of_sum(trial, {n: float(p.scale) for n, p in inputs.items()})
    terms = trial.terms if kind == "mean" else 1
    return _Wanted([(1, 0)], {n: _multiplier(trial, float(p.scale) / (output * terms)) for n, p in inputs.items()})


def _of_products(trial: Trial, count: int) -> list[tuple[int, int]]:
    """Return the multiplier of each channel of a sum of products."""
    params = [trial.qparams(name) for name in trial.tensors if trial.spec.inputs[name].role != "bias"]
    columns = [np.resize(p.scale.numpy(), count) for p in params]
    output = float(trial.output.scale)
    return [_multiplier(trial, math.prod(float(c[i]) for c in columns) / output) for i in range(count)]


def _of_sum(trial: Trial, scales: Mapping[str, float]) -> _Wanted:
    """Return the multipliers of operands that are brought to twice the largest scale, and that of their sum."""
    rule = trial.target.platform.multiplier
    places = rule.sum_shift if trial.target.scheme.activation.bits <= 8 else rule.wide_sum_shift
    wide, twice = 2.0 ** (places or 0), 2 * max(scales.values())
    factors = {
        n: expected_multipliers.right_shifted(wide * scale / twice, 31, _largest(trial)) for n, scale in scales.items()
    }
    return _Wanted([_multiplier(trial, twice / (float(trial.output.scale) * wide))], factors, "q31_single")


def _multiplier(trial: Trial, ratio: float) -> tuple[int, int]:
    return expected_multipliers.right_shifted(ratio, fixed_point_bits(trial), _largest(trial))


def _factors(rescale: Rescale, wanted: Mapping[str, tuple[int, int]]) -> Iterator[Finding]:
    for name, (mantissa, shift) in wanted.items():
        expected = Fraction(mantissa) / Fraction(2) ** shift
        yield equal(
            f"factor[{name}]",
            expected,
            Fraction(rescale.factors.get(name, 0.0)),
            FORM,
        )


def _bounds(trial: Trial) -> Iterator[Finding]:
    """Yield findings on the bounds of a clamp: nearest centred codes, ties by the platform's mode, inside the range."""
    output = trial.output
    zero, scale = int(output.zero_point), Fraction(float(output.scale))
    for name, end in (("least", "low"), ("most", "high")):
        if name in trial.parameters.numbers:
            nearest = rational_codes(Fraction(float(trial.bound[end])) / scale, trial.target.platform.rounding)[0]
            wanted = min(max(nearest, output.qmin - zero), output.qmax - zero)
            yield equal(name, wanted, trial.parameters.numbers[name], f"the code of {end}")


def _largest(trial: Trial) -> int:
    """Return the largest shift of the platform's multipliers."""
    shifts = trial.target.platform.multiplier.shifts
    assert shifts is not None
    return shifts[1]
