"""Bits of a sum of products: how many it needs, and how many a platform's accumulator has."""

from __future__ import annotations

from quantizer.core.platforms import Platform
from quantizer.core.schemes import Scheme
from quantizer.core.spec import Spec

SUM_BITS = 12
"""How many bits wider than a product a sum must be: room for 4,096 terms, or for 4,096 terms of half the size and a
bias."""

LONGEST = 40_000
"""The number of terms in the longest sum of a case: with 8-bit codes, such a sum exceeds 30 bits."""


def accumulator_bits(platform: Platform, scheme: Scheme) -> int:
    """Return the bits of the accumulator that the platform declares under *scheme*."""
    declared = platform.accumulator.bits
    return scheme.activation.accumulator_bits if declared == "scheme" else declared


def bits_of_sum(platform: Platform, spec: Spec, scheme: Scheme) -> int:
    """Return the bits that a signed sum of 4,096 products of centred codes needs, or the bias, if it is wider."""
    part, own = scheme.activation, scheme.weight
    # code - zero point has one bit more than a code
    centred = part.bits + (part.symmetry == "asymmetric")
    if own is None:
        return 2 * centred + SUM_BITS
    weight = platform.weight_bits.get(spec.quantization.family, own.bits) + (own.symmetry == "asymmetric")
    biased = any(item.role == "bias" for item in spec.inputs.values())
    return max(centred + weight + SUM_BITS, own.bias_bits if biased else 0)


def leaving_terms(platform: Platform, scheme: Scheme) -> int:
    """Return how many terms of largest codes overflow the accumulator, if zero points are in the middle of codes."""
    own, weight = scheme.activation.bits, scheme.weight
    # with the zero point in the middle a centred code has one bit less
    largest = ((1 << (own - 1)) - 1) * ((1 << ((own if weight is None else weight.bits) - 1)) - 1)
    return -(-(1 << (accumulator_bits(platform, scheme) - 1)) // max(largest, 1)) + 1


def is_narrow(platform: Platform, spec: Spec, scheme: Scheme) -> bool:
    """Return whether sums of 4,096 products, or of a case, overflow an accumulator that wraps or saturates."""
    if spec.error_model.kind != "bilinear" or platform.accumulator.overflow not in ("wrap", "saturate"):
        return False
    needed = bits_of_sum(platform, spec, scheme)
    return accumulator_bits(platform, scheme) < needed or leaving_terms(platform, scheme) <= LONGEST
