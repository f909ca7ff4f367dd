"""Whether a platform's multipliers reach the ratio of scales that a case has."""

from __future__ import annotations

import torch

from quantizer.conformance.target import Target
from quantizer.numerics.qparams import Rescale

WHOLE_BITS = 31
"""Bits of a multiplier whose exponents are limited to 30, so that its shift to the right is at least 1."""


def has_limited_reach(target: Target) -> bool:
    """Return whether some ratio of scales is too large for the platform's multipliers."""
    rule = target.platform.multiplier
    return rule.shifts is not None or _bits(target) < WHOLE_BITS or rule.positive_shifts


def reach_of(target: Target, rescale: Rescale) -> int | None:
    """Return the exponent at which the multipliers end, if the ratio of *rescale* is there or beyond; else None."""
    rule, bits = target.platform.multiplier, _bits(target)
    if rescale.variant == "multiplier_shift" and rule.positive_shifts:
        # a ratio beyond the reach becomes the largest multiplier with the shift 0
        saturated = (rescale.mantissa == 2.0**bits - 1) & (rescale.shift == 0)
        return bits if bool(saturated.any()) else None
    if rescale.variant not in ("q31_single", "q31_double"):
        return None
    # the largest multiplier is just below 2**bits; its shift is at least 1 unless the platform declares another
    reach = bits - (1 if rule.shifts is None else rule.shifts[0])
    ratio = float((rescale.mantissa * torch.exp2(-rescale.shift)).max())
    factor = 1.0 if rescale.operands is not None else max(rescale.factors.values(), default=1.0)
    return reach if ratio * factor >= 2.0**reach else None


def _bits(target: Target) -> int:
    return target.platform.multiplier.width(target.scheme.activation.bits)
