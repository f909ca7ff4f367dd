"""Finds settings of a platform that exclude each other under its schemes.

Lint reports each with the broken rule, in one line.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence

from quantizer.core.platform_settings import NARROW_BITS, TableRule
from quantizer.core.platforms import Platform
from quantizer.core.rooms import room_of
from quantizer.core.schemes import Scheme
from quantizer.core.spec import Spec
from quantizer.core.sum_bits import accumulator_bits, bits_of_sum
from quantizer.core.variants import Variant
from quantizer.core.yaml_source import Location

UNIFIED_BITS = 15
"""The largest number of bits of multipliers that share one shift."""
INTEGER_BITS: Mapping[Variant, int] = {
    **dict.fromkeys(("q31_single", "q31_double", "q31_half_up", "integer_multiplier_shift"), 31),
    **dict.fromkeys(("q15_half_up", "q15_single"), 16),
}
"""Requantization with an integer product -> the bits of its largest multiplier."""
PRODUCT_BITS = 63
"""The total bits of two signed factors whose product stays below 2**62."""
SHIFTED: tuple[Variant, ...] = ("multiplier_shift", "area_multiplier")
"""Requantizations that read `max_shift`, `positive_shifts` and `unify_shifts`."""


def setting_problems(
    platform: Platform, specs: Sequence[Spec], schemes: Mapping[str, Scheme]
) -> Iterator[tuple[Location, str]]:
    """Yield place and reason of settings that contradict each other for one of *specs*, which run on *platform*."""
    own = [schemes[name] for name in platform.schemes]
    yield from _signs(platform, own)
    yield from _segments(platform, own)
    yield from _alignment(platform, own)
    yield from _exponentials(platform)
    yield from _granularity(platform, own)
    yield from _shifts(platform, specs)
    yield from _absorbed(platform, specs)
    yield from _room_for_sums(platform, specs, own)
    yield from _room_for_products(platform, specs, own)
    yield from _fixed_outputs(platform, specs, own)
    yield from _activations(platform)
    yield from _boundaries(platform, specs)
    yield from _enclosing(platform, specs)
    yield from _padded_tiles(platform, specs, own)


def _is_symmetric(platform: Platform, scheme: Scheme) -> bool:
    part = scheme.activation
    return part.symmetry == "symmetric" or part.bits > platform.parameters.symmetric_above_bits


def _signs(platform: Platform, schemes: Sequence[Scheme]) -> Iterator[tuple[Location, str]]:
    """Unsigned codes represent negative numbers only with a zero point, and symmetric schemes have none."""
    found = next((scheme.name for scheme in schemes if _is_symmetric(platform, scheme)), None)
    if platform.parameters.activation_sign == "unsigned" and found is not None:
        text = f"unsigned codes of scheme {found!r}, which is symmetric, hold no negative number. "
        yield ("parameters", "activation_sign"), f"{text}Write by_range or signed, or an asymmetric scheme."
    elif platform.parameters.activation_sign == "unsigned" and platform.parameters.zero_point == "negated":
        text = "negated zero points are as small as those of signed codes. Write activation_sign: by_range or signed."
        yield ("parameters", "zero_point"), text
    elif platform.parameters.zero_point == "negated" and not any("parameters" in d.checks for d in platform.defects):
        asymmetric = next((scheme.name for scheme in schemes if not _is_symmetric(platform, scheme)), None)
        if asymmetric is not None:
            text = f"negated: one short of the smallest code, so that [0, max] loses a step (scheme {asymmetric!r})"
            yield ("parameters", "zero_point"), f"{text}. Write range, or declare a defect with checks: [parameters]."


def _segments(platform: Platform, schemes: Sequence[Scheme]) -> Iterator[tuple[Location, str]]:
    """A kernel finds its segment by a shift: their number is a power of two, and each has at least one code."""
    count = platform.tables.segments
    bits = {scheme.activation.bits for scheme in schemes}
    wide = [number for number in bits if platform.tables.segments_of(number) is not None]
    if count is None or not wide:
        return
    # a power of two has a single bit set
    if count & (count - 1):
        near = 1 << (count.bit_length() - 1)
        yield ("tables", "segments"), f"must be a power of two, got {count}. Write {near} or {2 * near}."
    elif count > 1 << min(wide):
        text = f"{count} segments of {1 << min(wide)} codes ({min(wide)} bits): a segment has one code at least."
        yield ("tables", "segments"), f"{text} Write {1 << min(wide)} at most."


def _alignment(platform: Platform, schemes: Sequence[Scheme]) -> Iterator[tuple[Location, str]]:
    """Points at equal distances are codes only if the table has an entry for each code."""
    rule = platform.tables
    if rule.entries != "lut_bits" or rule.alignment != "linspace":
        return
    for scheme in schemes:
        part = scheme.activation
        if part.lut_bits < part.bits:
            text = f"linspace: {1 << part.lut_bits} points over codes of {part.bits} bits (scheme {scheme.name!r}) are"
            yield ("tables", "alignment"), f"{text} not the codes that read the entries. Write stride."
            return


def _exponentials(platform: Platform) -> Iterator[tuple[Location, str]]:
    """The shipped softmax has exact exponentials; only functions of a room read the keys that change them."""
    if _has_functions(platform):
        return
    for key in ("exponential", "exponential_bits", "fraction_bits", "fast"):
        if getattr(platform.tables, key) != TableRule.model_fields[key].get_default(call_default_factory=True):
            text = "no function reads it here: the shipped softmax has exact exponentials. Remove the key, or write a"
            yield ("tables", key), f"{text} kernel and an oracle of softmax in a room."


def _has_functions(platform: Platform) -> bool:
    """Return whether a room's functions run on the platform. They may read keys that no shipped function reads."""
    room = room_of(platform.platform)
    return platform.functions is not None or (room is not None and bool(room.functions))


def _granularity(platform: Platform, schemes: Sequence[Scheme]) -> Iterator[tuple[Location, str]]:
    """A rule for one scale per tensor or per channel cannot hold for weights in blocks."""
    for scheme in schemes:
        if scheme.grid != "blocks":
            continue
        for key in ("per_tensor_weights", "per_channel_weights"):
            named: Sequence[str] = getattr(platform, key)
            for family in platform.scheme_families.get(scheme.name, ()):
                if family in named:
                    text = f"scheme {scheme.name!r} has a scale for each block. Name {family} in one of the two."
                    yield (key, named.index(family)), text
        if platform.parameters.weights_hold_bias:
            text = f"scheme {scheme.name!r} has a scale for each block, which no bias can widen. Remove the key."
            yield ("parameters", "weights_hold_bias"), text


def _shifts(platform: Platform, specs: Sequence[Spec]) -> Iterator[tuple[Location, str]]:
    """Only requantizations with integer shifts may have limits of shifts."""
    used = {variant for spec in specs for variant in variants_of(platform, spec.quantization.family)}
    rule = platform.multiplier
    for key in ("max_shift", "positive_shifts", "unify_shifts"):
        if key in rule.model_fields_set and used.isdisjoint(SHIFTED) and not _has_functions(platform):
            yield ("multiplier", key), "only multiplier_shift reads it, which no family has. Remove the key."
    if rule.unify_shifts and used & set(SHIFTED):
        bits = 0 if rule.bits == "activation" else min(rule.bits, rule.max_bits)
        if bits > UNIFIED_BITS:
            text = f"multipliers under one shift have {UNIFIED_BITS} bits at most, got bits: {bits}."
            yield ("multiplier", "unify_shifts"), f"{text} Write max_bits: {UNIFIED_BITS}."


def _absorbed(platform: Platform, specs: Sequence[Spec]) -> Iterator[tuple[Location, str]]:
    """A float32 bias can absorb a zero point's contribution to a sum of products.

    Other operators have no such contribution.
    """
    for spec in specs:
        family = spec.quantization.family
        biased = any(item.role == "bias" for item in spec.inputs.values())
        if family in platform.absorbs_zero_point and biased and spec.error_model.kind != "bilinear":
            text = f"{spec.op} adds no products with weights, so its bias includes no zero point. Remove the family."
            yield ("absorbs_zero_point", platform.absorbs_zero_point.index(family)), text
        elif family in platform.absorbs_zero_point and biased and platform.parameters.scale != "float32_steps":
            text = f"{spec.op}: a bias in float32 is a product of steps. Write parameters: {{scale: float32_steps}}, or"
            yield ("absorbs_zero_point", platform.absorbs_zero_point.index(family)), f"{text} remove the family."


def _room_for_sums(
    platform: Platform, specs: Sequence[Spec], schemes: Sequence[Scheme]
) -> Iterator[tuple[Location, str]]:
    """An accumulator that forbids overflow is wide enough for the sums of products of every scheme, plus a bias."""
    rule = platform.accumulator
    for spec in specs:
        squares = spec.error_model.kind == "euclidean"
        if rule.overflow not in (("forbidden", "wrap") if squares else ("forbidden",)):
            continue
        if spec.error_model.kind != "bilinear" and not squares:
            continue
        for scheme in schemes:
            families = platform.scheme_families.get(scheme.name)
            fits = (scheme.weight is not None) == spec.has_weights or scheme.grid == "blocks"
            if not fits or (families is not None and spec.quantization.family not in families):
                continue
            bits = accumulator_bits(platform, scheme)
            needed = bits_of_sum(platform, spec, scheme)
            if bits < needed:
                text = f"{spec.op} under {scheme.name!r} needs {needed} bits for 4,096 products and a bias, got {bits}."
                others = "saturate" if squares else "wrap or saturate"  # a sum of squares that wraps has no root
                yield ("accumulator", "overflow"), f"{rule.overflow}: {text} Write {others}, or more bits."
                return


def _room_for_products(
    platform: Platform, specs: Sequence[Spec], schemes: Sequence[Scheme]
) -> Iterator[tuple[Location, str]]:
    """A sum times an integer multiplier must fit 64 bits, with its sign and the added half."""
    said = set()
    for spec, scheme in itertools.product(specs, schemes):
        families = platform.scheme_families.get(scheme.name)
        family = spec.quantization.family
        if (scheme.weight is not None) != spec.has_weights or (families is not None and family not in families):
            continue
        for variant in sorted(variants_of(platform, family) & INTEGER_BITS.keys()):
            held, bits = _factor(platform, spec, scheme, variant), _multiplier_bits(platform, scheme, variant)
            if held is None or held + bits <= PRODUCT_BITS or variant in said:
                continue
            said.add(variant)
            if spec.error_model.kind == "bilinear":
                what, write = f"sums of {held} bits", "accumulator: {bits: 32, overflow: wrap}, or fewer bits"
            else:
                what, write = f"operands of {held} bits after their shift", "a smaller left_shift or sum_shift"
            place = family if family in platform.requantize else "default"
            text = f"{spec.op} under {scheme.name!r} has {what}; times a multiplier of {bits} bits they leave 64 bits."
            yield ("requantize", place), f"{text} Write {write}, or exact."


def _factor(platform: Platform, spec: Spec, scheme: Scheme, variant: Variant) -> int | None:
    """Return the bits of the multiplied number: a sum in its accumulator, or a widened operand."""
    rule, part = platform.accumulator, scheme.activation
    if spec.error_model.kind == "bilinear":
        needed = bits_of_sum(platform, spec, scheme)
        return min(needed, accumulator_bits(platform, scheme)) if rule.overflow in ("wrap", "saturate") else needed
    if len(spec.activations) < 2:
        return None
    shift = platform.multiplier.places(part.bits) if variant == "q31_double" else 0
    if (own := platform.multiplier.sum_shift) is not None:
        wide = platform.multiplier.wide_sum_shift
        shift = max(shift, own if part.bits <= NARROW_BITS else (wide or 0))
    # a centred code has one bit more, and a sum of two operands another one
    return part.bits + (part.symmetry == "asymmetric") + shift + 1


def _multiplier_bits(platform: Platform, scheme: Scheme, variant: Variant) -> int:
    """Return the bits of the multiplier of *variant*: as the platform declares, or the variant's maximum."""
    rule = platform.multiplier
    return min(INTEGER_BITS[variant], rule.width(scheme.activation.bits))


def _boundaries(platform: Platform, specs: Sequence[Spec]) -> Iterator[tuple[Location, str]]:
    """Exact division of real numbers needs float32 scales: otherwise float64 cannot tell a tie from its neighbour."""
    if platform.parameters.scale == "float32" or platform.runtime_quantizer.operation != "exact":
        return
    reals = [spec.op for spec in specs if any(item.kind == "real" for item in spec.inputs.values())]
    if reals:
        text = f"{reals[0]} divides real numbers exactly, for which scales must be float32 numbers."
        yield ("parameters", "scale"), f"{text} Write float32, or quantizer: {{operation: divide_float32}}."


def _activations(platform: Platform) -> Iterator[tuple[Location, str]]:
    """The computed activation must be the declared one, because another one gives other numbers."""
    for name, computed in platform.activations.items():
        if name != computed:
            text = f"{computed} in place of {name} gives other numbers. Write {name}, or remove the line."
            yield ("activations", name), text


def _fixed_outputs(
    platform: Platform, specs: Sequence[Spec], schemes: Sequence[Scheme]
) -> Iterator[tuple[Location, str]]:
    """A fixed zero point must be a code under every scheme; float formats have no zero point."""
    families = {spec.op: spec.quantization.family for spec in specs}
    for op, fixed in platform.fixed_outputs.items():
        for scheme in schemes:
            if op not in families or families[op] not in platform.scheme_families.get(scheme.name, [families[op]]):
                continue
            if scheme.activation.format != "integer":
                text = f"scheme {scheme.name!r} has activations of {scheme.activation.format}, and they fix integers."
                yield ("fixed_outputs", op), f"{text} Name other families under scheme_families, or remove the line."
                break
            own, bits = fixed.of(scheme.activation.bits), scheme.activation.bits
            zero = own.zero_point
            signed = platform.parameters.activation_sign != "unsigned" if own.signed is None else own.signed
            low, high = (-(1 << (bits - 1)), (1 << (bits - 1)) - 1) if signed else (0, (1 << bits) - 1)
            if isinstance(zero, int) and not low <= zero <= high:
                text = f"{zero} is not among the codes {low} to {high} of scheme {scheme.name!r}."
                yield ("fixed_outputs", op, "zero_point"), f"{text} Write min, middle, or one of them."
                break


def _enclosing(platform: Platform, specs: Sequence[Spec]) -> Iterator[tuple[Location, str]]:
    """Nothing else is known about an arithmetic under `enclosing`, so no other setting may state its rounding."""
    if platform.enclosing is None:
        return
    used = {variant for spec in specs for variant in variants_of(platform, spec.quantization.family)}
    if used - {"exact"}:
        text = "says that the arithmetic is unknown, requantize how it rounds. Write requantize: {default: exact}."
        yield ("enclosing",), text
    if platform.tables.entries != "full" or platform.tables.segments is not None:
        yield (
            ("enclosing",),
            "says that the arithmetic is unknown, and tables says that it interpolates. Remove tables.",
        )


def _padded_tiles(
    platform: Platform, specs: Sequence[Spec], schemes: Sequence[Scheme]
) -> Iterator[tuple[Location, str]]:
    """A fixed padding code in tiles equals the input's zero point only if the zero point is fixed, too."""
    found = next((scheme.name for scheme in schemes if not _is_symmetric(platform, scheme)), None)
    if found is None:
        return
    for op in sorted(platform.padded_tiles.keys() & {spec.op for spec in specs}):
        if not any("tiled" in defect.checks and defect.concerns(op) for defect in platform.defects):
            text = f"padding means 0, and the zero points of scheme {found!r} are other codes."
            yield ("padded_tiles", op), f"{text} Remove the key, or declare a defect with checks: [tiled]."


def variants_of(platform: Platform, family: str) -> set[Variant]:
    """Return the requantizations that *family* has on *platform* in some case."""
    usual = platform.requantize.get(family, platform.requantize["default"])
    return {usual, *(choice.variant for choice in platform.variants.get(family, ()))}
