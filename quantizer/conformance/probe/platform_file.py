"""Writes the finding as a platform file: a copy of a shipped platform, settings, or an enclosing platform."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import yaml

from quantizer.conformance.probe.elimination import ANY_ORDER, Found
from quantizer.conformance.probe.hypotheses import OF_MULTIPLIERS, Hypothesis
from quantizer.conformance.probe.words import answer, shown, told_apart
from quantizer.core.arithmetics import refusal
from quantizer.core.library import Library
from quantizer.core.platforms import Platform
from quantizer.core.yaml_source import load_yaml

FOLLOWED = ("same_as_input", "shared_parameters", "per_tensor_weights", "fixed_outputs", "output_signs", "index_dtype")
"""Keys that describe the grids of the questions."""
OF_FAMILY = ("requantize", "ratio")
"""Settings that a file declares per family."""
OWN = (*OF_FAMILY, "additions")
"""Settings that operators need not share: a file declares one saturating accumulator for any order of additions."""
WIDTH, INT32 = 118, 32
OTHER_SETTINGS = "its settings do not fit those of the other operators"


@dataclass
class Assembled:
    """A platform file that is being put together."""

    raw: dict[str, Any]
    kind: str
    """What kind of file it is, in words."""
    left: dict[str, str] = field(default_factory=dict)
    """Operator -> why it is not in the file."""


def assembled(name: str, engine: str, found: Iterable[Found], home: Platform, library: Library) -> Assembled:
    """Return the platform that explains most of *found*. Shipped platforms are preferred, and *home* among them."""
    found = list(found)
    explained = [one for one in found if one.kept and one.questions]
    copies = {
        platform: [one for one in explained if any(kept.shipped == platform for kept in one.kept)]
        for platform in sorted(library.platforms, key=lambda other: (other != home.platform, other))
    }
    new = _declared(name, engine, explained, home)
    floats = [one for one in explained if any(_of_float32(kept) for kept in one.kept)]
    best = max(copies, key=lambda platform: len(copies[platform]), default="")
    count = len(copies[best]) if best else 0
    # a copy keeps a room's functions, which settings cannot express; the engine's own platform wins a tie
    if count and (count > max(len(new.raw["ops"]), len(floats)) or (best == home.platform and count >= len(floats))):
        made = _copy(name, engine, copies[best], library, best)
    elif len(floats) > len(new.raw["ops"]):
        made = _enclosing(name, engine, floats, home)
    else:
        made = new
    for one in found:
        op = one.target.spec.op
        if op not in made.raw["ops"] and op not in made.left:
            made.left[op] = one.refused or (OTHER_SETTINGS if one.kept else "none of the declared arithmetics")
    return made


def document(made: Assembled, found: Iterable[Found], home: str) -> str:
    """Return the text of the file, with the evidence as comments."""
    lines = [f"# {made.kind}"]
    for one in found:
        op, best = one.target.spec.op, answer(one, home)
        if one.refused:
            lines.append(f"# {op}: not asked: {one.refused}")
        elif best is None:
            lines.append(f"# {op}: none of the declared arithmetics")
            lines += [f"#   {shown(evidence)}" for evidence in one.rejected[-1:]]
        else:
            lines.append(f"# {op}: {best} ({one.questions} questions, {one.elements} elements)")
            lines += [f"#   {shown(evidence)}" for evidence in told_apart(one, best)]
    lines += [f"# {op} is left out: {why}" for op, why in made.left.items()]
    return "\n".join(lines) + "\n" + yaml.safe_dump(made.raw, sort_keys=False, allow_unicode=True, width=WIDTH)


def _copy(name: str, engine: str, found: list[Found], library: Library, shipped: str) -> Assembled:
    raw, _ = load_yaml(library.platform_paths[shipped])
    raw = {key: value for key, value in raw.items() if key not in ("defects", "named")}
    ops = [one.target.spec.op for one in found]
    raw |= {
        "platform": name,
        "summary": f"What `quantizer engine probe` found in {engine}: {shipped}.",
        "ops": ops,
        "functions": library.platforms[shipped].functions or shipped,
    }
    return Assembled(raw, f"A copy of the platform {shipped}, which gave every code of these operators.")


def _enclosing(name: str, engine: str, found: list[Found], home: Platform) -> Assembled:
    raw = _base(name, engine, home) | {
        "ops": [one.target.spec.op for one in found],
        "requantize": {"default": "exact"},
        "accumulator": {"bits": 64, "overflow": "forbidden"},
        "enclosing": {"format": "float32"},
    }
    return Assembled(
        raw, "An enclosing platform: float32 operations explain these operators; the language names no order of them."
    )


def _declared(name: str, engine: str, found: list[Found], home: Platform) -> Assembled:
    """Return settings that fit together. Operators with the fewest hypotheses choose first."""
    raw = _base(name, engine, home)
    shared: dict[str, Any] = {}
    families: dict[str, Hypothesis] = {}
    ops, left = [], {}
    for one in sorted(found, key=lambda each: len(each.kept)):
        op, family = one.target.spec.op, one.target.spec.quantization.family
        fitting = [kept for kept in one.kept if _usable(kept, one) and _fits(kept, shared, families.get(family))]
        if not fitting:
            left[op] = next(filter(None, (_unusable(kept, one) for kept in one.kept)), OTHER_SETTINGS)
            continue
        families.setdefault(family, fitting[0])
        shared |= {key: value for key, value in fitting[0].settings if key not in OWN}
        ops.append(op)
    raw["ops"] = sorted(ops)
    raw["rounding"] = shared.get("rounding", home.rounding)
    raw["requantize"] = {
        **{family: str(one.value("requantize")) for family, one in sorted(families.items()) if one.value("requantize")},
        "default": "exact",
    }
    multiplier = {key: shared[key] for key in OF_MULTIPLIERS if key in shared}
    ratios = {family: one.value("ratio") for family, one in sorted(families.items()) if one.value("ratio")}
    if multiplier or ratios:
        raw["multiplier"] = {**multiplier, **({"ratio": ratios} if ratios else {})}
    width = shared.get("accumulator", "wide")
    raw["accumulator"] = (
        {"bits": 64, "overflow": "unbounded"}
        if width == "wide"
        else dict(zip(("bits", "overflow"), width, strict=True))
    )
    if "quantizer" in shared:
        raw["quantizer"] = dict(zip(("operation", "rounding", "zero_point"), shared["quantizer"], strict=True))
    if "tables" in shared:
        raw["tables"] = {"arithmetic": shared["tables"]}
    return Assembled(raw, "Settings of the platform language that give every code of these operators.", left)


def _of_float32(one: Hypothesis) -> bool:
    """Return whether an enclosing platform includes *one*'s results: float32 operations, rounded half to even."""
    narrow = one.value("accumulator")
    return one is ANY_ORDER or (
        one.program is not None
        and one.value("additions") is None
        and (narrow is None or narrow[0] >= INT32)
        and one.value("sum times") != "float64"
        and one.value("rounding") == "half_even"
    )


def _usable(one: Hypothesis, found: Found) -> bool:
    """Return whether a platform file may declare the hypothesis."""
    return not _unusable(one, found)


def _unusable(one: Hypothesis, found: Found) -> str:
    """Return why no platform file can declare the hypothesis; empty if one can."""
    if one.shipped:
        return f"only the room of platform {one.shipped} computes it"
    if one.program is not None and one.value("additions") is None:
        return "a file declares float32 operations only as enclosing, which rounds half to even"
    if one.platform is None:
        return "a file has no words for it"
    variant = one.value("requantize")
    return "" if variant is None else refusal(one.platform, found.target.spec, variant) or ""


def _fits(one: Hypothesis, shared: Mapping[str, Any], same_family: Hypothesis | None) -> bool:
    if same_family is not None and any(same_family.value(key) != one.value(key) for key in OF_FAMILY):
        return False
    return all(shared.get(key, value) == value for key, value in one.settings if key not in OWN)


def _base(name: str, engine: str, home: Platform) -> dict[str, Any]:
    schemes = [scheme for scheme in ("w8a8", "w8pta8", "a8") if scheme in (*home.schemes, *home.graph_schemes)]
    plain = home.model_dump(exclude_defaults=True, include={"parameters", "quantizer", *FOLLOWED})
    return {
        "platform": name,
        "summary": f"What `quantizer engine probe` found in {engine}.",
        "schemes": schemes,
        **plain,
    }
