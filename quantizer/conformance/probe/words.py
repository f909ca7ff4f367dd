"""Describes a hypothesis in words, with the evidence for it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from quantizer.conformance.probe.elimination import Evidence, Found
from quantizer.conformance.probe.hypotheses import Hypothesis

MOST_EVIDENCE = 5
MOST_CODES = 6
"""The largest number of an operand's codes that are printed."""


WRAPPING = ("q31_wrapping", "q31_wrapping_left")


@dataclass(frozen=True)
class Meaning:
    """The description of a requantization."""

    rescale: str
    roundings: str
    zero_point: str = "outside"
    """Whether the zero point is added inside the rounding, or to its result."""

    def __str__(self) -> str:
        return f"{self.rescale}; {self.roundings}; zero point {self.zero_point} the rounding"


_ONE, _PLATFORM = "one rounding", "one rounding, in the mode named"
MEANINGS: Mapping[str, Meaning] = {
    "exact": Meaning("the exact quotient", _PLATFORM),
    "f32_even": Meaning("float32 multiplier", "one rounding, half to even"),
    "f32_even_zpin": Meaning("float32 multiplier", "one rounding, half to even", "inside"),
    "f32_dequantized": Meaning("dequantized to float32, float32 quotient", "one rounding, half to even"),
    "q31_single": Meaning("integer multiplier", "one rounding, half up"),
    "q31_double": Meaning("31-bit integer multiplier", "two roundings: half up, then half away from zero"),
    "q31_half_up": Meaning("31-bit integer multiplier", "two roundings, both half up"),
    "q31_half_up_in_8_lanes": Meaning(
        "31-bit integer multiplier", "two roundings: whole eights of channels half up, the rest half away at the end"
    ),
    "q31_wrapping": Meaning("31-bit integer multiplier", "two roundings: half up, then in the mode named"),
    "q31_wrapping_left": Meaning(
        "31-bit integer multiplier behind a left shift", "two roundings: half up, then in the mode named"
    ),
    "q15_half_up": Meaning("15-bit integer multiplier", "one rounding, half up"),
    "q15_single": Meaning("15-bit integer multiplier", "one rounding, half up"),
    "half_away": Meaning("float64 ratio", "one rounding, half away from zero"),
    "multiplier_shift": Meaning("integer multiplier of a float32 ratio", _PLATFORM),
    "integer_multiplier_shift": Meaning("integer multiplier", _PLATFORM),
    "area_multiplier": Meaning("8-bit integer multiplier of 1 / terms", _PLATFORM),
    "area_reciprocal": Meaning("integer reciprocal of the terms", "one rounding, half up"),
    "q31_folded": Meaning("31-bit integer multiplier that holds 1 / terms", "two roundings, half away from zero"),
    "q21_half_up": Meaning("21-bit integer factors", "one rounding, half up"),
    "f32_even_inverse": Meaning("float32 multiplier times a float32 inverse", "one rounding, half to even"),
    "f32_even_bias": Meaning("float32 multiplier, the bias in float32", "one rounding, half to even"),
    "f32_stages_bias": Meaning("float32 product, bias and inverse one by one", "one rounding, half to even", "inside"),
    "f32_mean_of_codes_half_even": Meaning("float32 multiplier of raw codes", "one rounding, half to even", "inside"),
    "f32_mean_of_codes_half_away": Meaning("float32 multiplier of raw codes", "one rounding, half away from zero"),
    "mean_of_codes_half_away": Meaning("integer quotient of raw codes", "one rounding, half away from zero", "inside"),
    "aligned_half_away": Meaning("two integers of 22 bits under one shift", "one rounding, half away from zero"),
    "f32_products": Meaning("dequantized products, added in float32", "one rounding, half to even"),
    "f32_scaling": Meaning("w s_x / s_y in float32, bias / s_y added in one operation", "one rounding, half to even"),
    "f32_add_in_lanes": Meaning(
        "float32 scales, then an inverse", "one rounding, half to even", "outside in whole vectors, else inside"
    ),
    "f32_dequantized_fused": Meaning("float32 scale, then an inverse", "one rounding, half to even", "inside"),
    "f32_mean_divided": Meaning("float32 quotient by the terms", "one rounding, half to even", "inside"),
    "f32_mean_zpin": Meaning("float32 inverse of the terms", "one rounding, half to even", "inside"),
    "f32_mean_raw": Meaning("float32 inverse of the terms, for raw codes", "one rounding, half to even", "inside"),
    "f32_mean_inverse": Meaning("float32 ratio s / (s n)", "one rounding, half to even"),
    "half_up": Meaning("one quotient", "one rounding, half up"),
    "quotient_first": Meaning("integer quotient by the sum, then an integer multiplier", _PLATFORM),
    "q8_half_up": Meaning("8-bit integer multipliers, one for each sign", "one rounding, half up"),
    "q31_mean_in_16_lanes": Meaning(
        "31-bit integer multiplier of a sum of raw codes",
        "two roundings, half up in whole vectors of 16, else half away",
    ),
}
"""Requantization -> its description. core/platforms.py has the formulas of variants that only one system has."""


def answer(found: Found, home: str) -> Hypothesis | None:
    """Return the hypothesis that stands for all that remain; None if none remains.

    Settings with the requantization of platform *home* come first, then other settings, programs, and shipped
    platforms.
    """
    general = [one for one in found.kept if one.platform is not None and not one.shipped]
    own = declared_by(found, home)
    chosen = [one for one in general if own and one.value("requantize") == own]
    same = [one for one in found.kept if one.shipped == home]
    programs = [one for one in found.kept if one.program is not None]
    for group in (chosen, general, programs, same, found.kept):
        if group:
            return group[0]
    return None


def declared_by(found: Found, platform: str) -> str:
    """Return *platform*'s requantization for the operator's family, if the engine has the platform's grids."""
    target = found.target
    if target.platform.platform != platform:
        return ""
    family = target.spec.quantization.family
    return str(target.platform.requantize.get(family, target.platform.requantize["default"]))


def meaning(one: Hypothesis) -> str:
    """Return the description of a hypothesis."""
    known = MEANINGS.get(str(one.value("requantize")))
    return "" if known is None else str(known)


def told_apart(found: Found, one: Hypothesis) -> list[Evidence]:
    """Return evidence against the hypotheses nearest to *one*: one setting changed, then another requantization."""
    chosen: dict[str, Evidence] = {}
    mine = dict(one.settings)
    for evidence in found.rejected:
        other = dict(evidence.hypothesis.settings)
        differ = [key for key in {**mine, **other} if mine.get(key) != other.get(key)]
        if len(differ) != 1 or evidence.hypothesis.shipped:
            continue
        key = differ[0]
        # of several widths of the multiplier, the nearest says most
        if key == "bits" and key in chosen and _further(other, chosen[key].hypothesis, mine):
            continue
        chosen[key] = evidence
    last = [
        evidence for evidence in reversed(found.rejected) if evidence.hypothesis.value("requantize") not in _values(one)
    ]
    return list(dict.fromkeys([*chosen.values(), *last[:1]]))[:MOST_EVIDENCE]


def _further(other: Mapping[str, Any], chosen: Hypothesis, mine: Mapping[str, Any]) -> bool:
    return bool(abs(other["bits"] - mine["bits"]) > abs(chosen.value("bits") - mine["bits"]))


def _values(one: Hypothesis) -> tuple[Any, ...]:
    return (one.value("requantize"), None)


def shown(evidence: Evidence) -> str:
    """Return one element: its operands, the exact value, the engine's code and the hypothesis's code."""
    question, item = evidence.question, evidence.item
    operands = ", ".join(f"{name} {_codes(values[item])}" for name, values in question.shown.items())
    exact = float(question.exact()[item]) + int(question.output.zero_point)
    return (
        f"{operands} -> exactly {exact:.10g}, got {evidence.got}, {evidence.hypothesis} gives {evidence.wanted} "
        f"({grids(evidence)})"
    )


def grids(evidence: Evidence) -> str:
    """Return the scales and zero points of an element."""
    question, item = evidence.question, evidence.item
    parts = []
    for name, params in {
        **question.inputs,
        **{n: c.params for n, c in question.constants.items() if n != "bias"},
    }.items():
        scale, zero = params.scale.reshape(-1), params.zero_point.reshape(-1)
        place = item if scale.numel() > 1 else 0
        parts.append(_grid(name, float(scale[place]), int(zero[place])))
    parts.append(_grid("y", float(question.output.scale), int(question.output.zero_point)))
    return ", ".join(parts)


def _grid(name: str, scale: float, zero: int) -> str:
    return f"{name} {scale!r}" + (f" zero {zero}" if zero else "")


def _codes(values: Any) -> str:
    several = np.atleast_1d(np.asarray(values))
    if several.size > 1 and bool((several == several[0]).all()):
        return f"{several.size} times {several[0]}"
    text = " ".join(str(value) for value in several[:MOST_CODES])
    return text + (f" ... ({several.size})" if several.size > MOST_CODES else "")


def same_everywhere(kept: Iterable[Hypothesis], one: Hypothesis, op: str) -> list[str]:
    """Return the other hypotheses with equal codes everywhere: one per first setting, with the reason if known."""
    groups: dict[Any, list[Hypothesis]] = {}
    for other in kept:
        if other is not one and not other.shipped:
            groups.setdefault(other.settings[0], []).append(other)
    found = []
    for first, *more in groups.values():
        why = _why(one, first, op)
        found.append(f"{first}{f' ({why})' if why else ''}{f', and {len(more)} more of these' if more else ''}")
    return found


def _why(one: Hypothesis, other: Hypothesis, op: str) -> str:
    """Return why codes of 8 bits cannot tell two hypotheses apart; empty if that is unknown."""
    names = {str(one.value("requantize")), str(other.value("requantize"))}
    differ = {key for key in {**dict(one.settings), **dict(other.settings)} if one.value(key) != other.value(key)}
    if differ == {"accumulator"} and (one.value("overflow") == "x86" or names & {*WRAPPING}):
        return "the multiplier takes 32 bits of any sum"
    if names & {*WRAPPING} and names <= {*WRAPPING, "q31_double", "q31_half_up"}:
        return "the same two roundings; they differ where a left shift leaves 32 bits"
    if op == "relu" and differ == {"rounding"}:
        return "no value lies below the zero point"
    if names == {"multiplier_shift", "integer_multiplier_shift"}:
        return "the same integers; the ratio is float32 in one, float64 in the other, and 8 bits of it are kept"
    if names == {"f32_even", "f32_even_bias"}:
        return "they differ in the bias alone, and there is none"
    return ""
