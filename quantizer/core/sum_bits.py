"""Bits of a sum of products: those that it needs, and those that a platform's accumulator has."""

from __future__ import annotations

from quantizer.core.platforms import Platform
from quantizer.core.schemes import Scheme
from quantizer.core.spec import Spec

SUM_BITS = 12
"""Bits that a sum needs beyond one of its products: room for 4,096 terms, or for 4,096 terms of half the size and a
bias."""


def accumulator_bits(platform: Platform, scheme: Scheme) -> int:
    """Return the bits of the accumulator that the platform declares under *scheme*."""
    declared = platform.accumulator.bits
    return scheme.activation.accumulator_bits if declared == "scheme" else declared


def bits_of_sum(platform: Platform, spec: Spec, scheme: Scheme) -> int:
    """Return the bits that a signed sum of 4,096 products of centred codes needs, or the bias, if it is wider."""
    part, own = scheme.activation, scheme.weight
    centred = part.bits + (part.symmetry == "asymmetric")
    if own is None:
        return 2 * centred + SUM_BITS
    weight = platform.weight_bits.get(spec.quantization.family, own.bits) + (own.symmetry == "asymmetric")
    biased = any(item.role == "bias" for item in spec.inputs.values())
    return max(centred + weight + SUM_BITS, own.bias_bits if biased else 0)


def is_narrow(platform: Platform, spec: Spec, scheme: Scheme) -> bool:
    """Return whether a sum of 4,096 products leaves the accumulator, and the platform says what it then holds."""
    if spec.error_model.kind != "bilinear" or platform.accumulator.overflow not in ("wrap", "saturate"):
        return False
    return accumulator_bits(platform, scheme) < bits_of_sum(platform, spec, scheme)
