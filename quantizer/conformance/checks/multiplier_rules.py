"""Properties of a platform's multipliers (bits, shared shifts), and whether a plugin provides them."""

from __future__ import annotations

import math
import re

from quantizer.conformance.expected.multipliers import Shifts
from quantizer.conformance.trials.finding import Finding
from quantizer.conformance.trials.trial import Trial
from quantizer.ops import REGISTRY
from quantizer.ops.registry import BUILT_IN

FLOAT32_CODES = 2.0**-22
"""Relative tolerance of a number that was computed in float32."""


AREA_BITS = 8
"""The number of bits of the multiplier for 1 / area."""


DIVIDES = (
    "f32_dequantized",
    "f32_stages_bias",
    "f32_add_in_lanes",
    "f32_dequantized_fused",
    "aligned_half_away",
    "f32_mean_divided",
    "f32_mean_zpin",
    "f32_mean_raw",
    "f32_mean_inverse",
)
"""Variants whose rule provides the scale of the output."""


OF_AREAS = ("area_multiplier", "area_reciprocal")
"""Variants whose multiplier depends only on the number of terms."""
WHOLE = ("multiplier_shift", "integer_multiplier_shift", "area_multiplier", "area_reciprocal")
"""Variants with integer multipliers, besides the fixed-point ones (`q31_single`, `q15_half_up`, ...)."""
FIXED_POINT = re.compile("q[0-9]+_")
"""The start of the names of fixed-point variants."""


def has_whole_multipliers(variant: str) -> bool:
    """Return whether a multiplier of *variant* is held in an integer register."""
    return variant in WHOLE or FIXED_POINT.match(variant) is not None


def equal(what: str, wanted: object, got: object, rule: str) -> Finding:
    """Return a finding that passes if both are equal."""
    return Finding(what, 0.0 if wanted == got else math.inf, f"{wanted}", f"{got}", rule)


def multiplier_bits(trial: Trial) -> int:
    """Return the bits of a multiplier that the platform declares."""
    return trial.target.platform.multiplier.width(trial.target.scheme.activation.bits)


def shifts_of(trial: Trial) -> Shifts:
    """Return the shifts that the platform's integer multipliers have."""
    rule = trial.target.platform.multiplier
    return Shifts(rule.max_shift, rule.positive_shifts)


def fixed_point_bits(trial: Trial) -> int:
    """Return the bits of a fixed-point multiplier: 15 or 31 if the name of the requantization says so."""
    # q15_half_up is formed with 31 bits and then reduced to 15
    return {"q15_single": 15, "q15_half_up": 31}.get(str(trial.variant), multiplier_bits(trial))


def unifies_shifts(trial: Trial) -> bool:
    """Return whether all channels share one shift on the platform."""
    rule = trial.target.platform.multiplier
    return rule.unify_shifts and trial.spec.quantization.family not in rule.own_shifts


def is_replaced(trial: Trial) -> bool:
    """Return whether a plugin's quantize rule runs in place of a built-in one."""
    entry = REGISTRY.find(trial.spec.op, "quantize", trial.target.platform.places)
    return entry is not None and entry.origin != BUILT_IN
