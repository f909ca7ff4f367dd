"""Means: the exact sum times the provided multiplier, or divided by the number of terms, as the platform declares."""

from __future__ import annotations

from collections.abc import Mapping
from fractions import Fraction
from typing import Any

import numpy as np

from quantizer.conformance.bounds.pairs import of_floats
from quantizer.conformance.checks import replayed_stages
from quantizer.conformance.checks.multiplier_rules import AREA_BITS, OF_AREAS
from quantizer.conformance.checks.requantized import (
    CHECK,
    DECLARED,
    Array,
    Declared,
    Real,
    replayed_stage,
    rounded_once,
)
from quantizer.conformance.checks.unary import judge_by_reference
from quantizer.conformance.checks.window_sums import mean_sums
from quantizer.conformance.expected import multipliers as expected_multipliers
from quantizer.conformance.trials.trial import Trial
from quantizer.core.verdict import Verdict, inconclusive
from quantizer.numerics.qparams import Rescale


def mean(trial: Trial) -> Verdict:
    """Judge a mean: sum and count are exact; the multiplier is provided or follows from the count."""
    rescale, known = trial.parameters.rescale, mean_sums(trial)
    if rescale is None or known is None:
        return judge_by_reference(trial)
    sums, terms = known
    if rescale.variant in replayed_stages.REPLAYED:
        return replayed_stages.judged(trial, replayed_stages.reduced_codes(trial, rescale), "the declared stages")
    declared = DECLARED.get(rescale.variant)
    if declared is None:
        return inconclusive(CHECK, f"variant {rescale.variant} declares no rounding stages")
    if rescale.variant == "f32_dequantized" and not _is_global(trial):
        return _dequantized_mean(trial, terms, rescale)
    if rescale.variant == "f32_dequantized":
        # over the whole image the kernel multiplies by one float32 number
        ratio = np.float32(next(iter(rescale.factors.values())))
        mantissa = ratio / (np.float32(rescale.divisor) * terms.astype(np.float32))
        return replayed_stage(trial, sums, mantissa, DECLARED["f32_even"])
    factor = next(iter(rescale.factors.values()), 1.0)
    if declared.float32:
        return replayed_stage(trial, sums, np.asarray(factor, dtype=np.float32), declared)
    ratios = mean_ratios(rescale, [int(n) for n in np.unique(terms)])
    value = sums * np.array([float(ratios[int(n)]) for n in terms.ravel()]).reshape(terms.shape)
    return rounded_once(
        trial,
        Real(value, lambda i: int(sums[i]) * ratios[int(terms[i])]),
        declared,
        detail=lambda i: {"accumulator": str(int(sums[i])), "divided by": _divisor(rescale, int(terms[i]), ratios)},
    )


def _divisor(rescale: Rescale, terms: int, ratios: Mapping[int, Fraction]) -> str:
    """Return the divisor of a sum in words, with the integer multiplier that stands for its reciprocal."""
    return f"{terms}, as times {ratios[terms]}" if rescale.variant in OF_AREAS else str(terms)


def mean_ratios(rescale: Rescale, numbers: list[int]) -> dict[int, Fraction]:
    """Return the multiplier of a sum for each number of terms, in output codes per accumulator unit."""
    whole = Fraction(next(iter(rescale.factors.values()), 1.0)) * Fraction(float(rescale.mantissa))
    whole /= Fraction(2) ** int(rescale.shift) * Fraction(rescale.divisor)
    if rescale.variant in ("exact", "mean_of_codes_half_away"):
        return {n: whole / n for n in numbers}
    if rescale.variant == "area_reciprocal":
        pairs = {n: expected_multipliers.area_reciprocal(n) for n in numbers}
        return {n: Fraction(mantissa, 1 << shift) for n, (mantissa, shift) in pairs.items()}
    if rescale.variant != "area_multiplier":
        return dict.fromkeys(numbers, whole)
    found = {n: expected_multipliers.float32_multiplier(np.float32(1.0 / n), AREA_BITS) for n in numbers}
    # the rule gives (1, 0) only if every ratio is 1; next to other areas, the area 1 has a multiplier of 8 bits, too
    if numbers != [1] and 1 in found:
        found[1] = expected_multipliers.area_of_one(AREA_BITS)
    return {n: Fraction(mantissa) / Fraction(2) ** shift for n, (mantissa, shift) in found.items()}


def _is_global(trial: Trial) -> bool:
    """Return whether one window without padding covers the whole image. The float32 mean has a kernel for that case."""
    attrs: Mapping[str, Any] = trial.case.attrs
    return tuple(attrs["kernel"]) == trial.case.shapes["x"][2:] and not any(attrs["padding"])


def _dequantized_mean(trial: Trial, terms: Array, rescale: Rescale) -> Verdict:
    """Replay the float32 average: dequantize, add row by row, / count, / scale, + zero point, round half to even."""
    attrs: Mapping[str, Any] = trial.case.attrs
    x = trial.centred["x"].numpy().astype(np.float32) * np.float32(next(iter(rescale.factors.values())))
    zero = int(trial.output.zero_point)
    total = np.zeros(trial.output_shape, dtype=np.float32)
    for place in np.ndindex(*trial.output_shape[2:]):
        rows, columns = (
            # windows are cut at the edges of the image
            range(max(0, i * s - p), min(size, i * s - p + k))
            for i, s, p, k, size in zip(
                place, attrs["stride"], attrs["padding"][:2], attrs["kernel"], x.shape[2:], strict=True
            )
        )
        # in the kernel's order, which decides the float32 sum
        for row in rows:
            for column in columns:
                total[(slice(None), slice(None), *place)] += x[:, :, row, column]
    value = total / terms.astype(np.float32) / np.float32(rescale.divisor) + np.float32(zero)
    real = value.astype(np.float64) - zero
    return rounded_once(
        trial,
        Real(real, of_floats(real)),
        Declared("half_even", zero_point_first=True, float32=True),
        detail=lambda i: {"divided by": str(int(terms[i]))},
    )
