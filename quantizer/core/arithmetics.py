"""Which requantization variants work for which kinds of operators, and which other settings they need.

Lint refuses every other combination.

A requantization that composes has all of these forms under every rounding. A variant of a single system supports the
families in which that system was measured. On another platform it works only together with that system's other
settings.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Literal

from quantizer.core.model import Model
from quantizer.core.platforms import Platform
from quantizer.core.rounding_modes import RoundingMode
from quantizer.core.spec import Spec
from quantizer.core.variants import Variant
from quantizer.core.yaml_source import Location

NAMING = frozenset(
    {
        "platform",
        "summary",
        "target",
        "schemes",
        "graph_schemes",
        "graph_requantize",
        "ops",
        "ops_named_for",
        "functions",
        "defects",
        "graph_defects",
        "releases",
    }
)
"""Keys of a platform that describe it but do not affect its arithmetic."""
Form = Literal["product", "sum", "selection", "one input", "concatenation", "mean", "pooling"]
_EVERY: tuple[Form, ...] = ("product", "sum", "selection", "one input", "concatenation", "mean", "pooling")
COMPOSING: Mapping[Variant, tuple[Form, ...]] = {
    "exact": _EVERY,
    "f32_even": ("product", "sum", "selection", "one input", "concatenation", "mean"),
    "f32_even_zpin": ("product", "sum", "selection", "one input", "concatenation", "mean"),
    "multiplier_shift": ("product", "sum", "one input", "concatenation", "mean"),
    "q31_single": ("product",),
    "q31_double": ("product", "sum", "one input", "concatenation"),
    "q31_half_up": ("product",),
    "half_away": ("product",),
    "q15_half_up": ("product",),
    "q15_single": ("product",),
    "integer_multiplier_shift": ("product",),
    "f32_dequantized": ("sum", "selection", "concatenation", "pooling"),
    "q21_half_up": ("sum",),
    "q31_folded": ("mean",),
    "f32_mean_of_codes_half_even": ("mean",),
    "area_multiplier": ("mean", "pooling"),
}
"""Requantization -> the kinds of sums that it handles. A requantization that is not listed here belongs to one
system."""
OF_31_BITS = ("q31_double", "q31_half_up", "q31_half_up_in_8_lanes")
"""Requantizations that multiply by a 31-bit number and keep the high half of the product."""
LIMITED: tuple[Variant, ...] = ("q31_single", "q31_double", "q15_single")
"""Requantizations whose shifts `multiplier: {shifts: ...}` limits."""
WIDENED: tuple[Form, ...] = ("sum", "selection", "one input", "concatenation", "mean")
"""Kinds of sums whose operands are widened if shifts are limited."""
OWN_ROUNDING: Mapping[Variant, RoundingMode] = {
    **dict.fromkeys(("f32_even", "f32_even_zpin", "f32_dequantized", "f32_mean_of_codes_half_even"), "half_even"),
    **dict.fromkeys(
        ("q31_single", "q31_half_up", "q31_half_up_in_8_lanes", "q15_half_up", "q15_single", "q21_half_up"), "half_up"
    ),
    **dict.fromkeys(("q31_double", "q31_folded", "half_away"), "half_away"),
}
"""Requantizations with their own rounding mode, independent of the platform's."""
OF_EXACT_SCALES = (
    "it multiplies by the product of scales, which is exact in float64 only for float32 scales. "
    "Write parameters: {scale: float32}, or another requantization."
)
RATIO_BITS = 24
"""Significant bits of a float32 ratio."""


def form_of(spec: Spec) -> Form | None:
    """Return the kind of sum that *spec* requantizes; None for operators without a sum (tables, movement, ...)."""
    match spec.error_model.kind:
        case "bilinear":
            return "product"
        case "linear" if spec.quantization.family == "concatenation":
            return "concatenation"
        case "linear" | "selection" as kind if len(spec.activations) > 1:
            return "sum" if kind == "linear" else "selection"
        case "linear" | "selection":
            return "one input"
        case "mean":
            return "pooling" if "kernel" in spec.attrs else "mean"
        case _:
            return None


def refusal(platform: Platform, spec: Spec, variant: Variant, home: Platform | None = None) -> str | None:
    """Return why the built-in functions cannot compute *spec* on *platform* under *variant*; None if they can.

    home: the shipped platform whose functions *platform* uses under other settings.
    """
    form, rule = form_of(spec), platform.multiplier
    if _multiplies_scales(spec, form, variant) and platform.parameters.scale != "float32":
        return OF_EXACT_SCALES
    if form is None:
        return None
    if variant not in COMPOSING:
        others = ", ".join(_having(form))
        if home is None:
            return f"{variant} is the arithmetic of one system, whose platform is shipped. Write one of {others}."
        kept = f"under all settings of {home.platform}, and this file changes {', '.join(changed(platform, home))}"
        return f"{variant} is the arithmetic of one system {kept}. Keep these, or write one of {others}."
    if form not in COMPOSING[variant] and not (variant == "q31_single" and form in WIDENED and _widens(platform)):
        return f"{variant} has no rule for a {form}. Write one of {', '.join(_having(form))}."
    # the high half of a 32-bit product needs a normalised multiplier of 31 bits
    if variant in OF_31_BITS and (rule.bits != 31 or rule.max_bits < 31):
        bits = rule.bits if rule.bits != 31 else rule.max_bits
        return f"{variant} multiplies by 31 bits, got multiplier: {{bits: {bits}}}. Write 31, or q31_single."
    if variant == "multiplier_shift" and rule.bits != "activation" and min(rule.bits, rule.max_bits) > RATIO_BITS:
        return f"multiplier_shift takes a float32 ratio, of {RATIO_BITS} bits at most, got bits: {rule.bits}."
    if variant == "multiplier_shift" and rule.shifts is not None:
        said = "multiplier_shift limits its shifts by max_shift; shifts is for fixed-point multipliers"
        return f"{said}, got {rule.shifts}. Write max_shift."
    if (why := _of_shifts(platform, form, variant)) is not None:
        return why
    return _of_limits(platform, spec, variant)


def _of_limits(platform: Platform, spec: Spec, variant: Variant) -> str | None:
    """Return why the limit of a fused activation is rounded in another way than sums; None if it is not."""
    own, limited = OWN_ROUNDING.get(variant), "relu6" in spec.fuses and platform.activations.get("relu6") == "relu6"
    if own is None or not limited or platform.limit(variant) is not None:
        return None
    if variant == "f32_even_zpin":
        return f"{variant} adds the zero point before it rounds; a fused relu6's limit has none. Use activation_limits."
    if own != platform.rounding:
        return (
            f"{variant} rounds {own}, the limit of a fused relu6 {platform.rounding}. "
            f"Write rounding: {own}, or activation_limits."
        )
    return None


def _of_shifts(platform: Platform, form: Form, variant: Variant) -> str | None:
    """Return why *variant* cannot follow the platform's rules for shifts (one for all, limits); None if it can."""
    rule = platform.multiplier
    if rule.unify_shifts and form == "product" and variant != "multiplier_shift":
        return f"{variant} has a shift for each channel, got unify_shifts. Write multiplier_shift, or remove the key."
    if rule.shifts is not None and variant not in LIMITED:
        return f"{variant} has no shifts of {rule.shifts}. Write one of {', '.join(LIMITED)}, or remove shifts."
    if rule.shifts is not None and form in WIDENED and rule.sum_shift is None:
        return f"limited shifts of a {form} need widened operands. Write sum_shift, too."
    if rule.sum_shift is not None and rule.shifts is None and form in WIDENED and variant in LIMITED:
        return f"{variant} of widened operands needs limited shifts. Write shifts: [2, 62] too, or remove sum_shift."
    return None


def _multiplies_scales(spec: Spec, form: Form | None, variant: Variant) -> bool:
    """Return whether *spec* multiplies by the exact product of two scales under *variant*."""
    if form == "product":
        return variant == "exact" or spec.quantization.family == "scaling"
    return form is None and spec.has_weights and spec.error_model.kind != "normalization"


def _widens(platform: Platform) -> bool:
    return platform.multiplier.sum_shift is not None and platform.multiplier.shifts is not None


def refusals(
    platform: Platform, specs: Iterable[Spec], home: Platform | None = None, *, generic: bool = False
) -> Iterator[tuple[Location, str]]:
    """Yield place and reason for each operator family whose requantization variant on *platform* does not support it.

    *home*: the shipped platform whose functions *platform* uses. If both have the same arithmetic, nothing that runs on
    *home* is refused. *generic*: only the variants in COMPOSING are checked; the platform's room may implement the
    others.
    """
    said: set[tuple[Location, Variant]] = set()
    # a copy runs whatever the shipped platform runs, even beyond the composing forms
    copied = home is not None and is_copy(platform, home)
    for spec in specs:
        family = spec.quantization.family
        if not runs(platform, spec) or (copied and home is not None and runs(home, spec)):
            continue
        usual: Location = ("requantize", family if family in platform.requantize else "default")
        chosen = [(usual, platform.requantize.get(family, platform.requantize["default"]))]
        chosen += [
            (("variants", family, index), choice.variant)
            for index, choice in enumerate(platform.variants.get(family, ()))
        ]
        if family in platform.graph_requantize:
            chosen.append((("graph_requantize", family), platform.graph_requantize[family]))
        for place, variant in chosen:
            if generic and variant not in COMPOSING:
                continue
            why = refusal(platform, spec, variant, home)
            if why is not None and (place, variant) not in said:
                said.add((place, variant))
                yield place, f"{spec.op}: {why}"


def is_copy(platform: Platform, home: Platform) -> bool:
    """Return whether *platform* declares the arithmetic of *home*, for no more schemes."""
    return not any(changed(platform, home))


def changed(platform: Platform, home: Platform) -> Iterator[str]:
    """Yield the keys of settings that differ between *platform* and *home*, such as `tables.segments`."""
    for key in sorted(Platform.model_fields.keys() - NAMING):
        own, other = getattr(platform, key), getattr(home, key)
        if own != other:
            yield from _inner(key, own, other)
    if not {*home.schemes, *home.graph_schemes}.issuperset((*platform.schemes, *platform.graph_schemes)):
        yield "schemes"


def _inner(key: str, own: object, other: object) -> Iterator[str]:
    """Yield the fields that differ between two settings; the setting itself if it has no fields."""
    if not (isinstance(own, Model) and isinstance(other, Model)):
        yield key
        return
    for name in type(own).model_fields:
        if getattr(own, name) != getattr(other, name):
            yield f"{key}.{name}"


def runs(platform: Platform, spec: Spec) -> bool:
    """Return whether *platform* has the operator, and *spec* does not exclude it under every scheme."""
    wholly = any(item.platform in platform.places and item.scheme is None for item in spec.excludes)
    return not wholly and (platform.ops is None or spec.op in platform.ops)


def _having(form: Form) -> list[Variant]:
    return [variant for variant, forms in COMPOSING.items() if form in forms]
