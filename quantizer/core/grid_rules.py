"""The declarations that a platform needs for schemes other than integers under one scale. A finding names its place."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from quantizer.core.model_errors import Finding
from quantizer.core.platforms import Platform
from quantizer.core.schemes import Scheme
from quantizer.core.wording import suggestion


def check_grids(platform: Platform, schemes: Mapping[str, Scheme]) -> Iterator[Finding]:
    """Yield the errors in the schemes of *platform*: unknown families, formats that its arithmetic cannot compute."""
    for name in platform.scheme_families:
        if name not in platform.schemes:
            text = f"not one of the platform's schemes.{suggestion(name, platform.schemes, 'Known schemes')}"
            yield Finding(("scheme_families", name), text, key=True)
    for index, name in enumerate(platform.schemes):
        if name not in schemes or schemes[name].grid == "uniform":
            continue
        words = schemes[name].grid_words
        if name not in platform.scheme_families:
            text = f"{name!r} has {words}: only some families have them. Name these under scheme_families."
            yield Finding(("schemes", index), text)
        for place, reason in _refusals(platform, name, schemes[name]):
            yield Finding(place, f"scheme {name!r} has {words}, which {reason}.")


def _refusals(platform: Platform, name: str, scheme: Scheme) -> Iterator[tuple[tuple[str | int, ...], str]]:
    for index, family in enumerate(platform.scheme_families.get(name, [])):
        variant = platform.requantize.get(family, platform.requantize.get("default"))
        if variant != "exact" or family in platform.variants:
            yield ("scheme_families", name, index), f"only `requantize: exact` computes; family {family} has {variant}"
    if scheme.grid == "blocks" and scheme.activation.format != "integer":
        yield ("scheme_families", name), f"need activations of integers, not {scheme.activation.format}"
    if platform.quantizer.operation != "exact":
        yield ("quantizer", "operation"), f"only the exact quantizer makes, not {platform.quantizer.operation}"
    if platform.parameters.scale != "float32":
        yield ("parameters", "scale"), f"have float32 scales, whose products are exact, not {platform.parameters.scale}"
    if scheme.activation.format != "integer" and platform.parameters.activation_sign != "signed":
        yield ("parameters", "activation_sign"), "have a sign"
    if platform.activation_limits:
        yield ("activation_limits",), "have no rule for the limit of an activation"
