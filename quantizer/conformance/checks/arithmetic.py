"""arithmetic: the integer forward, on what was handed, rounded once (VERDICTS, "arithmetic")."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from quantizer.conformance.bounds.rounding import code_interval, rational_codes
from quantizer.conformance.checks.elements import judge_codes, judge_equal
from quantizer.conformance.checks.layer_norm import layer_norm_arithmetic
from quantizer.conformance.checks.normalised import softmax_arithmetic
from quantizer.conformance.trial import Trial
from quantizer.core.platforms import RoundingMode, Variant
from quantizer.core.verdict import Verdict, Worst, failure, hole
from quantizer.numerics.qparams import Rescale

Array = NDArray[Any]
CHECK = "arithmetic"
FLOAT32_UNIT = 2.0**-24
EXACT_LIMIT = 2.0**53


@dataclass(frozen=True)
class Declared:
    """How a requantization variant rounds."""

    rounding: RoundingMode | None = None
    """The mode; None: the platform's."""
    zero_point_first: bool = False
    """The zero point is added before rounding."""
    float32: bool = False
    """The stage is float32 arithmetic and is replayed."""
    high_multiply: bool = False
    """A high multiply rounds at 2**31 before the shift."""


DECLARED: Mapping[Variant, Declared] = {
    "exact": Declared(),
    "multiplier_shift": Declared(),
    "f32_even": Declared("half_even", float32=True),
    "f32_even_zpin": Declared("half_even", zero_point_first=True, float32=True),
    "q31_single": Declared("half_up"),
    "q15_half_up": Declared("half_up"),
    "half_away": Declared("half_away"),
    "q31_double": Declared("half_away", high_multiply=True),
    "ruy": Declared("half_up", high_multiply=True),
    "tpulang_multiplier_shift": Declared(),
}


def arithmetic(trial: Trial) -> Verdict:
    """Judge output codes against the exact real number that the handed parameters prescribe."""
    judge = _JUDGES.get(trial.spec.error_model.kind, _stand_in)
    return judge(trial)


def _bilinear(trial: Trial) -> Verdict:
    rescale = trial.parameters.rescale
    if rescale is None:
        return _stand_in(trial)
    acc = trial.sums
    magnitude = trial.sum_magnitudes
    if magnitude.size and float(magnitude.max()) >= EXACT_LIMIT:
        return hole(CHECK, "the accumulator leaves the integers that float64 holds")
    held, refusal = _accumulator(trial, acc, magnitude)
    if refusal is not None:
        return refusal
    declared = DECLARED.get(rescale.variant)
    if declared is None:
        return hole(CHECK, f"variant {rescale.variant} declares no rounding stages")
    mantissa, shift = trial.per_channel(rescale.mantissa), trial.per_channel(rescale.shift)
    if declared.float32:
        return _replayed(trial, held, mantissa, declared)
    factor = mantissa * np.exp2(-shift.astype(np.float64))
    value = held * factor / rescale.divisor
    extra = np.where(shift > 31, 0.5 * np.exp2(31.0 - shift), 0.0) if declared.high_multiply else 0.0
    exact = _exact_product(held, mantissa, shift, rescale)
    return _rounded(trial, value, declared, extra, exact, lambda index: {"accumulator": str(int(held[index]))})


def _accumulator(trial: Trial, acc: Array, magnitude: Array) -> tuple[Array, Verdict | None]:
    rule = trial.target.platform.accumulator
    bits = trial.target.scheme.activation.accumulator_bits if rule.bits == "scheme" else rule.bits
    limit = 2.0 ** (bits - 1)
    if rule.overflow == "unbounded" or not acc.size or float(magnitude.max()) < limit:
        return acc, None
    outside = (acc >= limit) | (acc < -limit)
    if rule.overflow == "wrap":
        return (acc + limit) % (2 * limit) - limit, None
    if rule.overflow == "saturate":
        return acc, Verdict(CHECK, "overflow", elements=acc.size, reason="a saturating sum leaves its range")
    if outside.any():
        index = tuple(int(i) for i in np.argwhere(outside)[0])
        worst = Worst("accumulator", index, f"at most {int(limit) - 1}", str(int(acc[index])), f"{bits} bits")
        return acc, failure(CHECK, "the accumulator leaves the range that the platform declares", worst)
    return acc, None


def _exact_product(
    held: Array, mantissa: Array, shift: Array, rescale: Rescale
) -> Callable[[tuple[int, ...]], Fraction]:
    wide_mantissa, wide_shift = np.broadcast_to(mantissa, held.shape), np.broadcast_to(shift, held.shape)

    def exact(index: tuple[int, ...]) -> Fraction:
        product = Fraction(int(held[index])) * Fraction(float(wide_mantissa[index]))
        return product / Fraction(2) ** int(wide_shift[index]) / Fraction(rescale.divisor)

    return exact


def _replayed(trial: Trial, held: Array, mantissa: Array, declared: Declared) -> Verdict:
    """Replay a float32 stage whose order the platform declares; its float32 result is rounded half to even."""
    zero = int(trial.output.zero_point)
    scaled = held.astype(np.float32) * mantissa.astype(np.float32)
    if declared.zero_point_first:
        value = (scaled + np.float32(zero)).astype(np.float64) - zero
    else:
        value = scaled.astype(np.float64)
    return _rounded(
        trial, value, declared, 0.0, lambda index: Fraction(float(value[index])),
        lambda index: {"accumulator": str(int(held[index]))},
    )  # fmt: skip


def _rounded(
    trial: Trial, value: Array, declared: Declared, extra: Array | float,
    exact: Callable[[tuple[int, ...]], Fraction], detail: Callable[[tuple[int, ...]], Mapping[str, str]],
) -> Verdict:  # fmt: skip
    zero = int(trial.output.zero_point)
    mode = declared.rounding or trial.target.platform.rounding
    low, high = code_interval(
        value, e_over_s=extra, zero_point=zero, qmin=trial.output.qmin, qmax=trial.output.qmax, rounding=mode,
        zero_point_first=declared.zero_point_first, exact=exact,
    )  # fmt: skip
    spread = (0.5 if mode.startswith("half") else 1.0) + np.broadcast_to(np.asarray(extra), value.shape)
    further = f" + {float(np.max(extra)):.3g} of an earlier stage" if np.any(extra) else ""
    return judge_codes(
        CHECK, trial, low, high, value=value, allowance=spread, zero=zero,
        made_of=f"{mode} of the handed sum{further}", detail=lambda i: {**detail(i), "exact": f"{value[i]:.9g} + {zero}"},
    )  # fmt: skip


def _linear(trial: Trial) -> Verdict:
    """Judge a sum of operands: each one's contribution is exact, its factor is handed."""
    rescale = trial.parameters.rescale
    if rescale is None:
        return _stand_in(trial)
    parts = contributions(trial)
    declared = DECLARED.get(rescale.variant)
    if declared is None:
        return hole(CHECK, f"variant {rescale.variant} declares no rounding stages")
    gain = float(rescale.mantissa) * 2.0 ** -int(rescale.shift) / rescale.divisor
    value = (
        sum((part * rescale.factors.get(name, 1.0) for name, part in parts.items()), np.zeros(trial.output_shape))
        * gain
    )

    def exact(index: tuple[int, ...]) -> Fraction:
        total = sum(
            (Fraction(rescale.factors.get(name, 1.0)) * int(part[index]) for name, part in parts.items()), Fraction(0)
        )
        return total * Fraction(float(rescale.mantissa)) / Fraction(2) ** int(rescale.shift) / Fraction(rescale.divisor)

    extra = _float32_sum(trial, rescale) if declared.float32 else np.zeros(trial.output_shape)
    return _rounded(trial, value, declared, extra, exact, lambda i: {n: str(int(p[i])) for n, p in parts.items()})


def contributions(trial: Trial) -> dict[str, Array]:
    """Return what each centred operand alone contributes to a linear operator's output, as exact integers."""
    zeros = {name: values * 0 for name, values in trial.centred.items()}
    return {name: trial.reference({**zeros, name: values}) for name, values in trial.centred.items()}


def _float32_sum(trial: Trial, rescale: Rescale) -> Array:
    """Return the float32 term of a sum whose order is not declared: 2**-24 of the summed magnitudes per operation.

    Zero where every product and sum is exact in float32: all ratios powers of two and the terms short enough.
    """
    zero = abs(int(trial.output.zero_point))
    raw = {name: values.double().abs() for name, values in trial.codes.items()}
    zeros = {name: values * 0 for name, values in raw.items()}
    total = np.full(trial.output_shape, float(zero))
    exact = True
    for name, values in raw.items():
        ratio = rescale.factors.get(name, 1.0)
        offset = abs(int(trial.qparams(name).zero_point))
        total = total + ratio * trial.reference({**zeros, name: values + offset})
        exact &= math.frexp(ratio)[0] == 0.5
    smallest = min((ratio for ratio in rescale.factors.values()), default=1.0)
    operations = 4 * len(raw)
    short = exact and bool((total.max(initial=0.0) / min(smallest, 1.0)) < 2.0**24)
    return np.zeros(trial.output_shape) if short else operations * FLOAT32_UNIT * total


def _movement(trial: Trial) -> Verdict:
    """Codes move as they are; where the output has other parameters than the input, they are rescaled exactly."""
    name = trial.spec.activations[0]
    params, output = trial.qparams(name), trial.output
    moved = trial.sums
    if float(params.scale) == float(output.scale):
        wanted = np.clip(moved.astype(np.int64) + int(output.zero_point), output.qmin, output.qmax)
        return judge_equal(CHECK, trial, trial.got, wanted, "the codes of the input, moved")
    return _stand_in(trial)


def _index(trial: Trial) -> Verdict:
    """Indices equal the reference operator's on the codes."""
    wanted = trial.reference({name: values.double() for name, values in trial.codes.items()}).astype(np.int64)
    return judge_equal(CHECK, trial, trial.got, wanted, "the reference's index on the codes, ties by the declared rule")


def _stand_in(trial: Trial) -> Verdict:
    """Where nothing is handed, f on the values of the codes stands in; float64 leaves 2**-40 of it open.

    Only a value that float64 puts exactly between two codes is held to the declared mode: beside a tie both codes pass.
    """
    output, scale = trial.output, Fraction(float(trial.output.scale))
    zero, mode = int(output.zero_point), trial.target.platform.rounding
    value = trial.y_hat / float(scale)
    low, high = code_interval(value, zero_point=zero, qmin=output.qmin, qmax=output.qmax, rounding=mode)
    for index in zip(*(places.tolist() for places in np.nonzero(low != high)), strict=True):
        exact = Fraction(float(trial.y_hat[index])) / scale
        if (2 * exact).denominator == 1:
            code = rational_codes(exact, mode)[0] + zero
            low[index] = high[index] = min(max(code, output.qmin), output.qmax)
    return judge_codes(
        CHECK, trial, low, high, value=value, allowance=0.5 if mode.startswith("half") else 1.0, zero=zero,
        made_of=f"{mode} of f on the values of the codes", detail=lambda i: {"exact": f"{value[i]:.9g} + {zero}"},
    )  # fmt: skip


_JUDGES: Mapping[str, Callable[[Trial], Verdict]] = {
    "bilinear": _bilinear,
    "linear": _linear,
    "movement": _movement,
    "index": _index,
    "softmax": softmax_arithmetic,
    "normalization": layer_norm_arithmetic,
}
