"""Rounds an exact number to a code as each requantization variant declares it. All judges of sums use it."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from quantizer.conformance.bounds.pairs import Exact, Pair, of_floats
from quantizer.conformance.bounds.rounding import code_interval, rational_codes
from quantizer.conformance.checks.float32_stages import REPLAYS
from quantizer.conformance.expected import parameters as expected_parameters
from quantizer.conformance.grids import exact_position, listed, positions
from quantizer.conformance.trials.elements import Allowed, Detail, exact_value, judge_codes
from quantizer.conformance.trials.trial import Trial
from quantizer.core.platform_settings import FirstRounding
from quantizer.core.platforms import computed_activation
from quantizer.core.rounding_modes import RoundingMode
from quantizer.core.variants import Variant
from quantizer.core.verdict import Verdict

Array = NDArray[Any]
CHECK = "arithmetic"
FLOAT32_UNIT = 2.0**-24
CONCLUSIVE = 2
"""An element with more allowed codes than this is inconclusive."""


@dataclass(frozen=True)
class Declared:
    """How a requantization variant rounds."""

    rounding: RoundingMode | None = None
    """The rounding mode; None: the platform's mode."""
    zero_point_first: bool = False
    """The zero point is added before rounding."""
    float32: bool = False
    """The stage is float32 arithmetic and is replayed."""
    high_multiply: bool = False
    """A high multiply rounds half up at 2**31, before the shift rounds; both are replayed."""
    wraps: bool = False
    """A shift to the left wraps in 32 bits."""
    vector: int = 0
    """Channels after the last whole group of this size round half away."""
    twice: bool = False
    """The platform's first rounding comes before this one, if it declares one."""


DECLARED: Mapping[Variant, Declared] = {
    "exact": Declared(),
    "multiplier_shift": Declared(twice=True),
    "f32_even": Declared("half_even", float32=True),
    "f32_even_zpin": Declared("half_even", zero_point_first=True, float32=True),
    "q31_single": Declared("half_up"),
    "q15_half_up": Declared("half_up"),
    "q15_single": Declared("half_up"),
    "area_reciprocal": Declared("half_up"),
    "half_away": Declared("half_away"),
    "q31_double": Declared("half_away", high_multiply=True),
    "q31_half_up": Declared("half_up", high_multiply=True),
    "q31_half_up_in_8_lanes": Declared("half_up", high_multiply=True, vector=8),
    "q31_folded": Declared("half_away", high_multiply=True),
    "q31_mean_in_16_lanes": Declared("half_up", high_multiply=True, vector=16),
    "q21_half_up": Declared("half_up"),
    "q8_half_up": Declared("half_up"),
    "mean_of_codes_half_away": Declared("half_away", zero_point_first=True),
    "f32_mean_of_codes_half_even": Declared("half_even", zero_point_first=True, float32=True),
    "f32_mean_of_codes_half_away": Declared("half_away", float32=True),
    "area_multiplier": Declared(),
    "f32_dequantized": Declared("half_even", float32=True),
    "integer_multiplier_shift": Declared(),
    **dict.fromkeys(("q31_wrapping_left", "q31_wrapping"), Declared("half_away", high_multiply=True, wraps=True)),
    **dict.fromkeys(REPLAYS, Declared("half_even", float32=True)),
}


def last_roundings(trial: Trial) -> set[RoundingMode]:
    """Return the modes in which the platform may round to a code: its own, its variant's and its quantizer's."""
    platform, rescale = trial.target.platform, trial.parameters.rescale
    if trial.spec.error_model.kind == "movement":
        return {platform.rounding, platform.quantizer.rounding, platform.runtime_quantizer.rounding}
    own = None if rescale is None or rescale.variant not in DECLARED else DECLARED[rescale.variant].rounding
    return {own or platform.rounding}


@dataclass(frozen=True)
class Real:
    """The real number of each element in output steps, without zero point."""

    value: Array
    exact: Exact
    """The number of one element in rationals, by its index; it decides near ties."""
    magnitude: Array | float = 0.0
    """The sum of |terms|, where these are real numbers that may cancel."""


def rounded_once(
    trial: Trial,
    real: Real,
    declared: Declared,
    *,
    extra: Array | float = 0.0,
    detail: Detail | None = None,
    what: str = "the provided sum",
    top: Real | None = None,
) -> Verdict:
    """Judge codes of *real* numbers: rounded once in the declared mode, *extra* codes for earlier stages.

    detail: what a failure also shows. top: the largest number of each element, where *real* is the smallest of several;
    an element is inconclusive if more than `CONCLUSIVE` codes are then possible.
    """
    zero, mode = int(trial.output.zero_point), declared.rounding or trial.target.platform.rounding
    low, high, value = _codes(trial, real, declared, extra)
    if top is not None:
        _, high, _ = _codes(trial, top, declared, extra)
    spread = (0.5 if mode.startswith("half") else 1.0) + np.broadcast_to(np.asarray(extra), value.shape)
    if (first := first_rounding(trial, declared)) is not None:
        spread = spread + first_unit(first)
        what = f"{what}, which is first rounded {first.rounding} to {first.fraction_bits} binary places"
    further = f" + {float(np.max(extra)):.3g} for earlier roundings" if np.any(extra) else ""
    if trial.case.activation != "none":
        further += f", then {computed_activation(trial.target.platform, trial.case.activation)}"
    allowed = Allowed(
        low,
        high,
        value=value,
        allowance=spread,
        zero=zero,
        made_of=f"{mode} of {what}{further}",
        detail=lambda i: {**(detail(i) if detail else {}), **exact_value(value, zero)(i)},
    )
    verdict = judge_codes(CHECK, trial, allowed)
    return verdict if top is None else replace(verdict, vacuous=int(np.count_nonzero(high - low >= CONCLUSIVE)))


def _codes(trial: Trial, real: Real, declared: Declared, extra: Array | float) -> tuple[Array, Array, Array]:
    """Return the smallest and the largest code of each number, and the numbers within the limits of the activation."""
    zero, mode = int(trial.output.zero_point), declared.rounding or trial.target.platform.rounding
    least, most = (limit / float(trial.output.scale) for limit in trial.limits)
    own = trial.target.platform.limit(trial.variant) if math.isfinite(most) else None
    value, exact, magnitude = real.value, real.exact, real.magnitude
    if (first := first_rounding(trial, declared)) is not None:
        value, exact = _rounded_first(value, exact, first)
    # a limit that becomes a code by its own rule cuts the codes below, not the numbers
    value = np.clip(value, least, np.inf if own else most)
    exact = _limited(trial, exact, capped=own is None)
    if (form := listed(trial.output)) is not None:
        # on a grid that is finer near 0, the error of float64 counts in its finest steps
        magnitude = np.maximum(magnitude, np.abs(value)) / form.unit
        value, exact = positions(value, trial.output), _placed(trial, exact)
    low, high = code_interval(
        value,
        e_over_s=extra,
        zero_point=zero,
        qmin=trial.output.qmin,
        qmax=trial.output.qmax,
        rounding=mode,
        zero_point_first=declared.zero_point_first,
        exact=exact,
        magnitude=magnitude,
    )
    if own is not None:
        limit = expected_parameters.limit_code(trial.limits[1], float(trial.output.scale), zero, own)
        end = min(limit, trial.output.qmax)
        low, high = np.minimum(low, end), np.minimum(high, end)
    return low, high, value


def first_rounding(trial: Trial, declared: Declared) -> FirstRounding | None:
    """Return the rounding that the platform declares before the rounding to a code, or None."""
    return trial.target.platform.first_rounding if declared.twice else None


def first_unit(first: FirstRounding) -> float:
    """Return by how much a first rounding moves a number at most."""
    return 2.0**-first.fraction_bits * (0.5 if first.rounding.startswith("half") else 1.0)


def _rounded_first(value: Array, exact: Exact, first: FirstRounding) -> tuple[Array, Exact]:
    """Return the numbers after the first rounding, computed in rationals, because float64 cannot decide a tie."""
    held = np.asarray(value, np.float64).copy()
    # every element, because nothing here says which numbers are far from a tie
    for index in np.ndindex(*held.shape):
        held[index] = (
            rational_codes(exact(index) * 2**first.fraction_bits, first.rounding)[0] * 2.0**-first.fraction_bits
        )
    return held, of_floats(held)


def _placed(trial: Trial, exact: Exact) -> Exact:
    """Return the places of the numbers from *exact* between the codes of the output."""
    return lambda index: exact_position(exact(index), trial.output)


def _limited(trial: Trial, exact: Exact, *, capped: bool) -> Exact:
    """Return *exact* clamped as the fused activation clamps real values; to its upper limit only if *capped*."""
    if trial.case.activation == "none":
        return exact
    scale = Fraction(float(trial.output.scale))
    low, high = (None if math.isinf(limit) else Fraction(limit) / scale for limit in trial.limits)

    def clamped(index: tuple[int, ...]) -> Fraction:
        value = exact(index)
        value = value if low is None else max(value, low)
        return value if high is None or not capped else min(value, high)

    # a pair compares exactly with 0 and with a float64 limit only
    if not isinstance(exact, Pair) or low not in (None, 0):
        return clamped
    held = exact if low is None else exact.at_least_zero(clamped)
    return held if high is None or not capped else held.below(float(high), clamped)


def replayed_stage(trial: Trial, held: Array, mantissa: Array, declared: Declared) -> Verdict:
    """Replay a float32 stage whose order the platform declares; its float32 result is rounded half to even."""
    zero = int(trial.output.zero_point)
    scaled = held.astype(np.float32) * mantissa.astype(np.float32)
    if declared.zero_point_first:
        value = (scaled + np.float32(zero)).astype(np.float64) - zero
    else:
        value = scaled.astype(np.float64)
    return rounded_once(trial, Real(value, of_floats(value)), declared, detail=accumulator(held))


def accumulator(held: Array) -> Detail:
    """Return the detail that shows the sum of an element."""
    return lambda index: {"accumulator": str(int(held[index]))}


def before_activation(trial: Trial, held: Array) -> Array:
    """Return sums in the format that the platform declares for the fused activation."""
    if trial.case.activation not in trial.target.platform.accumulator.float32_before:
        return held
    return np.asarray(held.astype(np.float32).astype(np.float64))
