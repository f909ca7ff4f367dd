"""Factors and multipliers of sums, means and selections compared with the platform's rule."""

from __future__ import annotations

import math
from collections.abc import Iterator
from fractions import Fraction

import numpy as np

from quantizer.conformance.checks.multiplier_rules import (
    AREA_BITS,
    DIVIDES,
    FLOAT32_CODES,
    equal,
    is_replaced,
    multiplier_bits,
    shifts_of,
)
from quantizer.conformance.checks.window_sums import mean_counts
from quantizer.conformance.expected import multipliers as expected_multipliers
from quantizer.conformance.expected import sums as expected_sums
from quantizer.conformance.oracle import fixed
from quantizer.conformance.trials.finding import Finding
from quantizer.conformance.trials.trial import Trial
from quantizer.numerics.qparams import QParams, Rescale

WORD_BITS = 16
"""Any multiplier may have this many bits."""
NARROWEST = 8
"""The fewest bits of the larger factor of a sum, those of the narrowest multiplier: that of 8-bit activations."""


def sum_multiplier(trial: Trial, rescale: Rescale) -> Iterator[Finding]:
    """Yield findings on a sum's factors: exact scales, float32 ratios bit for bit, or the integers of the rule."""
    output = trial.output
    params = {n: p for n, p in trial.parameters.inputs.items() if trial.spec.inputs[n].kind == "value"}
    if rescale.variant == "area_multiplier":
        provided = (dict(rescale.factors), float(rescale.mantissa), int(rescale.shift))
        yield equal("factors, multiplier, shift", ({}, 1.0, 0), provided, "the number of terms alone decides")
        return
    if rescale.variant == "multiplier_shift":
        # pairs are written into files, but kernels read the factors
        for name, (multiplier, shift) in rescale.pairs.items():
            got = Fraction(multiplier) / Fraction(2) ** shift
            yield equal(f"multiplier and shift[{name}]", Fraction(rescale.factors.get(name, 0.0)), got, "the factor")
        meet = len(params) > 1 and trial.spec.quantization.family != "concatenation"
        yield from (_integer_factors if meet else integer_ratios)(trial, rescale)
        return
    yield equal("factors", sorted(params), sorted(rescale.factors), "one factor for each operand")
    if (stated := _fixed_point_numbers(trial, rescale)) is not None:
        got_numbers = (*rescale.factors.values(), float(rescale.mantissa), float(rescale.shift))
        yield equal("factors, multiplier, shift", stated, got_numbers, "the platform's rule, restated")
        return
    for name, factor in rescale.factors.items():
        if name not in params:
            continue
        got = (
            Fraction(factor)
            * Fraction(float(rescale.mantissa))
            / Fraction(2) ** int(rescale.shift)
            / Fraction(rescale.divisor)
        )
        if rescale.variant in ("exact", *DIVIDES):
            wanted = Fraction(float(params[name].step)) / Fraction(float(output.scale))
        else:
            divisor = np.float32(float(output.scale)) * np.float32(_terms(trial))
            wanted = Fraction(float(np.float32(float(params[name].scale)) / divisor))
        yield Finding(
            f"factor[{name}]",
            0.0 if got == wanted else math.inf,
            f"{float(wanted)!r}",
            f"{float(got)!r}",
            "s_x / s_y",
        )


def _fixed_point_numbers(trial: Trial, rescale: Rescale) -> tuple[float, ...] | None:
    """Return the factors, the multiplier and the shift of a fixed-point or float32 sum; None for other sums."""
    scales = [float(trial.parameters.inputs[name].scale) for name in rescale.factors]
    output, bits = float(trial.output.scale), trial.target.scheme.activation.bits
    ratios = [float(np.float32(scale) / np.float32(output)) for scale in scales]
    match rescale.variant:
        case "q31_double" if trial.target.platform.multiplier.sum_shift is not None:
            return None
        case "q31_double" if len(scales) > 1:
            factors, numbers = expected_sums.widened_sum(scales, output, trial.target.platform.multiplier.places(bits))
            return (*factors, *map(float, numbers))
        case "q31_double":
            arithmetic = trial.target.platform.multiplier.ratio.get(trial.spec.quantization.family, "float32")
            return (1.0, *map(float, fixed(scales[0] / output if arithmetic == "float64" else ratios[0])))
        case "q21_half_up":
            factors, shift = expected_sums.on_one_grid(ratios)
            return (*factors, 1.0, float(shift))
        case "q31_folded":
            return (1.0, *map(float, expected_sums.folded(scales[0] / output, _count(trial))))
        case "mean_of_codes_half_away" | "q31_mean_in_16_lanes":
            return (1.0, 1.0, 0.0)
        case "f32_mean_of_codes_half_even" | "f32_mean_of_codes_half_away":
            count = _count(trial) if trial.spec.error_model.kind == "mean" else 1
            return (float(np.float32(ratios[0]) * (np.float32(1.0) / np.float32(count))), 1.0, 0.0)
    return None


def _count(trial: Trial) -> int:
    """Return the number of terms of a mean."""
    known = mean_counts(trial)
    return 1 if known is None else int(known.max(initial=1))


def _terms(trial: Trial) -> int:
    """Return the number of terms in a mean's multiplier (of the smallest window if windows differ), else 1."""
    if trial.spec.error_model.kind != "mean":
        return 1
    known = mean_counts(trial)
    return 1 if known is None or not known.size else int(known.min())


def _integers(trial: Trial, rescale: Rescale) -> Iterator[Finding]:
    """Judge that multipliers and factors fit an integer kernel: in the bits of the rule, or of a word if it has more.

    A factor may stand for a multiplier that has its own shift, so it may have fractional bits or trailing zero bits.
    """
    bits = max(multiplier_bits(trial), WORD_BITS)
    for name, value in (("multiplier", rescale.mantissa.item()), *rescale.factors.items()):
        # without trailing zeros, which are a shift, the significant bits remain
        whole = abs(Fraction(value).numerator)
        if whole // max(whole & -whole, 1) >= 1 << bits:
            text = "an integer kernel multiplies by it"
            yield Finding(name, math.inf, f"an integer of at most {bits} bits, shifted", f"{value!r}", text)


def integer_ratios(trial: Trial, rescale: Rescale) -> Iterator[Finding]:
    """Judge one multiplier and shift per operand: equal to the rule's; a plugin's need only be near the ratio."""
    yield from _integers(trial, rescale)
    bits, output, common = multiplier_bits(trial), trial.output, Fraction(2) ** -int(rescale.shift)
    if trial.target.platform.requantize.get(trial.spec.quantization.family) == "area_multiplier":
        bits = AREA_BITS
    common *= Fraction(float(rescale.mantissa))
    for name, params in _present(trial).items():
        got = Fraction(rescale.factors.get(name, 1.0)) * common
        share = np.float32(1.0 / _terms(trial)) * (_codes_per_unit(output) / _codes_per_unit(params))
        stated = expected_multipliers.float32_multiplier(share, bits, shifts_of(trial))
        mantissa, shift = (1.0, 0) if _copied(trial) else stated
        same = got == Fraction(mantissa) / Fraction(2) ** shift
        if same or not is_replaced(trial):
            yield Finding(
                f"multiplier[{name}]",
                0.0 if same else math.inf,
                f"{int(mantissa)} * 2**-{shift}",
                f"{float(got):.9g}",
                f"the rule's multiplier of {bits} bits",
            )
            continue
        ratio = Fraction(float(params.scale)) / Fraction(float(output.scale)) / _terms(trial)
        yield _near(trial, f"multiplier[{name}]", got, ratio, bits)


def _codes_per_unit(params: QParams) -> np.float32:
    """Return float32 codes per unit: `steps` if the platform stores them, else 1 / scale."""
    return np.float32(1.0 / float(params.scale) if params.steps is None else float(params.steps))


def _near(trial: Trial, name: str, got: Fraction, ratio: Fraction, bits: int) -> Finding:
    """Judge a plugin's multiplier: within *bits* of the ratio, or half a unit of the largest shift.

    The rule's shift is the largest that keeps the multiplier within 2**bits - 1. So the multiplier is at least half of
    that.
    """
    # the largest shift leaves half of its unit, however small the ratio is
    floor = Fraction(1, 2 << trial.target.platform.multiplier.max_shift)
    allowed = max(ratio / (2**bits - 1), floor) + ratio * Fraction(FLOAT32_CODES)
    text = f"{bits} bits of the ratio"
    return Finding(name, float(abs(got - ratio) / allowed), f"{float(ratio):.9g}", f"{float(got):.9g}", text)


def _present(trial: Trial) -> dict[str, QParams]:
    """Return the parameters of the activations in the case. Parameters of absent activations may still be stored."""
    return {name: params for name, params in trial.parameters.inputs.items() if name in trial.case.shapes}


def declared_loss(trial: Trial, rescale: Rescale, name: str) -> float:
    """Return how far an operand's factor times the multiplier may be from s_x / s_y in the declared formats.

    It is the sum of four errors: half a unit of the multiplier, which is at least half of 2**bits - 1; half a unit of
    a factor's 15 bits; the multiplier times half a unit of a factor; and half a unit at the largest shift. The largest
    factor has the NARROWEST bits or more: a rule that chooses fewer does not widen what is allowed.
    """
    ratio = _ratio(trial, name)
    one, shift = float(rescale.mantissa) * 2.0 ** -int(rescale.shift), int(rescale.shift)
    bits = multiplier_bits(trial)
    finest = max(_ratio(trial, other) for other in _present(trial)) * 2.0 ** (1 - NARROWEST)
    rounded = 0.5 * min(one, finest) if any(factor != 1.0 for factor in rescale.factors.values()) else 0.0
    unit = 2.0**-shift if shift >= trial.target.platform.multiplier.max_shift else 0.0
    return (
        ratio * (1.0 / (2.0**bits - 1.0) + 2.0**-15 + 2.0**-20) + rounded + 0.5 * unit * rescale.factors.get(name, 1.0)
    )


def _ratio(trial: Trial, name: str) -> float:
    return float(trial.parameters.inputs[name].scale) / float(trial.output.scale)


def _copied(trial: Trial) -> bool:
    """Return whether the platform copies codes: all scales within its factor, all zero points equal."""
    reach = trial.target.platform.aligned_within.get(trial.spec.quantization.family)
    everything = [*trial.parameters.inputs.values(), trial.output]
    steps = [float(1.0 / params.scale if params.steps is None else params.steps) for params in everything]
    zeros = {int(params.zero_point) for params in everything}
    return reach is not None and len(zeros) == 1 and max(steps) <= reach * (min(steps) + 2.0**-23)


def _restated_factors(trial: Trial, names: list[str], got: tuple[float, ...], bits: int) -> Iterator[Finding]:
    """Judge multiplier, shift and the factors of two operands: they equal the numbers of the platform's rule."""
    first, second = (trial.parameters.inputs[name] for name in names)
    step_a, step_b, step_y = (_codes_per_unit(params) for params in (first, second, trial.output))
    equal_zero = int(first.zero_point) == int(second.zero_point)
    adds = trial.spec.quantization.family not in trial.target.platform.multiplier.unscaled
    shifts = shifts_of(trial)
    wanted = expected_multipliers.crossed_sum(step_a, step_b, step_y, bits, shifts, equal_zero=equal_zero, adds=adds)
    for what, expected, chosen in zip(
        ("multiplier", "shift", *(f"factor[{n}]" for n in names)), wanted, got, strict=True
    ):
        yield Finding(
            what, 0.0 if expected == chosen else math.inf, f"{expected}", f"{chosen}", "the platform's rule for sums"
        )


def _integer_factors(trial: Trial, rescale: Rescale) -> Iterator[Finding]:
    """Judge the factors to a common scale and the common multiplier. A plugin's need only be near the ratios."""
    yield from _integers(trial, rescale)
    names = list(_present(trial))
    bits = multiplier_bits(trial)
    got = (float(rescale.mantissa), int(rescale.shift), *(rescale.factors.get(name, 1.0) for name in names))
    rule = [*_restated_factors(trial, names, got, bits)] if len(names) == 2 else []
    if rule and (not is_replaced(trial) or all(finding.ratio == 0.0 for finding in rule)):
        yield from rule
        return
    for name, factor in zip(names, got[2:], strict=True):
        ratio = _ratio(trial, name)
        allowed = declared_loss(trial, rescale, name)
        gain = factor * got[0] * 2.0 ** -got[1]
        yield Finding(
            f"factor[{name}]",
            abs(gain - ratio) / allowed,
            f"{ratio:.9g}",
            f"{gain:.9g}",
            f"within {bits} bits of s_x / s_y",
        )
