"""Validation of platforms beyond the schema; each finding has its place in the file."""

from __future__ import annotations

from collections.abc import Iterator

from quantizer.core.defects import check_defects, check_graph_defects
from quantizer.core.dtypes import DTYPES
from quantizer.core.errors import PluginError, SpecError
from quantizer.core.expressions import parse
from quantizer.core.model_errors import Finding
from quantizer.core.platform_settings import SIGNS, Quantizer
from quantizer.core.platforms import Platform
from quantizer.core.rooms import engines
from quantizer.core.rounding_modes import RoundingMode
from quantizer.core.version_numbers import parse_version
from quantizer.core.wording import suggestion
from quantizer.core.yaml_source import Location


def check_platform(platform: Platform, stem: str) -> list[Finding]:
    """Return the errors of *platform* beyond its schema; it was read from a file called *stem*.yaml."""
    findings = []
    if platform.platform != stem:
        text = f"must equal the file's name, got {platform.platform!r}. Write platform: {stem}."
        findings.append(Finding(("platform",), text))
    for key, names in (("schemes", platform.schemes), ("ops", platform.ops or [])):
        findings += [
            Finding((key, index), f"{name!r} is listed before.")
            for index, name in enumerate(names)
            if name in names[:index]
        ]
    for family, sign in platform.output_signs.items():
        if sign not in SIGNS:
            try:
                parse(sign)
            except SpecError as err:
                findings.append(Finding(("output_signs", family), str(err)))
            else:
                # a single word is a misspelled sign, not an expression
                if not parse(sign).names - {"unknown"} or sign.isidentifier():
                    text = f"must be {', '.join(SIGNS)} or an expression over attributes, got {sign!r}."
                    findings.append(Finding(("output_signs", family), text + suggestion(sign, SIGNS, "Known")))
    findings += list(_random_roundings(platform))
    findings += _first_rounding(platform)
    findings += _empty_ranges(platform)
    if "default" not in platform.requantize:
        findings.append(
            Finding(("requantize", "default"), "must be given: the variant of families that are not named.")
        )
    if platform.index_dtype not in DTYPES or not DTYPES[platform.index_dtype].is_integer:
        integers = [name for name, dtype in DTYPES.items() if dtype.is_integer]
        text = f"{platform.index_dtype!r}: no such integer format.{suggestion(platform.index_dtype, integers, 'Known')}"
        findings.append(Finding(("index_dtype",), text))
    for key, expression in platform.significant_bits.items():
        for name in sorted(expression.names - {"activation_bits"}):
            findings.append(Finding(("significant_bits", key), f"name {name!r} is not activation_bits."))
    findings += _releases(platform)
    findings += check_defects(platform.defects, "defects")
    taken = [defect.id for defect in platform.defects]
    return [*findings, *check_graph_defects(platform.graph_defects, taken)]


def _releases(platform: Platform) -> Iterator[Finding]:
    """Yield a finding for each release with an unknown engine, without changes, or in the wrong order."""
    last: dict[str, tuple[int, ...]] = {}
    for index, release in enumerate(platform.releases):
        if release.engine not in engines():
            text = f"{release.engine!r}: no such engine.{suggestion(release.engine, engines(), 'Known')}"
            yield Finding(("releases", index, "engine"), text)
        try:
            first = parse_version(release.first)
        except PluginError as err:
            yield Finding(("releases", index, "first"), str(err))
            continue
        if release.quantizer == platform.quantizer:
            yield Finding(("releases", index, "quantizer"), "is the platform's own. Change it, or remove the entry.")
        if first <= last.get(release.engine, ()):
            text = f"{release.first} does not follow the entry before it. List versions in rising order."
            yield Finding(("releases", index, "first"), text)
        last[release.engine] = first


def _first_rounding(platform: Platform) -> Iterator[Finding]:
    """Yield a finding where a first rounding is declared and no family has the requantization that rounds twice."""
    used = {*platform.requantize.values(), *(c.variant for choices in platform.variants.values() for c in choices)}
    if platform.first_rounding is not None and "multiplier_shift" not in used:
        write = "Write requantize: {default: multiplier_shift}, or remove the key."
        text = f"only multiplier_shift has a first rounding. {write}"
        yield Finding(("first_rounding",), text)


def _empty_ranges(platform: Platform) -> Iterator[Finding]:
    """Yield a finding where an empty range has no scale."""
    if platform.parameters.scale == "float32_steps" and platform.parameters.minimum_range == 0.0:
        text = "must be above 0 with scale: float32_steps: an empty range has no codes per unit. Write 1.0e-7."
        yield Finding(("parameters",), f"minimum_range {text}")


def _random_roundings(platform: Platform) -> Iterator[Finding]:
    """Yield findings on stochastic rounding.

    Platforms cannot have it, because repeated and tiled runs must give equal codes.
    """
    quantizers: dict[Location, Quantizer | None] = {
        ("quantizer",): platform.quantizer,
        ("kernel_quantizer",): platform.kernel_quantizer,
        **{("releases", index, "quantizer"): release.quantizer for index, release in enumerate(platform.releases)},
    }
    modes: dict[Location, RoundingMode] = {("rounding",): platform.rounding}
    if platform.first_rounding is not None:
        modes["first_rounding", "rounding"] = platform.first_rounding.rounding
    modes |= {(*place, "rounding"): part.rounding for place, part in quantizers.items() if part is not None}
    for place, mode in modes.items():
        if mode == "stochastic":
            text = (
                "stochastic: tiled, repeated and permuted runs could not be compared. Write a deterministic rounding."
            )
            yield Finding(place, text)
