"""The table of agreement between real engines and platforms, for the terminal and the documents."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from tabulate import tabulate

from quantizer.conformance.agreement.measure import Agreement, compare
from quantizer.conformance.failures.message import graph_line
from quantizer.conformance.judging.known_defects import concerns
from quantizer.conformance.target import Target
from quantizer.core.defects import Defect
from quantizer.core.levels import label
from quantizer.core.processor import processor
from quantizer.core.wording import in_markdown
from quantizer.runtime.engines.protocol import Engine

NAMED = ("operator", "scheme")
MEASURED = ("random", "tied", "elements", "largest", "refused", "explained by")


@dataclass(frozen=True)
class Pairing:
    """One engine on one target: the results of both populations, and the declared defects of the engine there."""

    engine: str
    version: str
    isa: str
    """The level of instructions to which the engine was limited, as a label, which also says if there was no limit."""
    target: Target
    random: Agreement
    tied: Agreement
    defects: tuple[Defect, ...]

    @property
    def differs(self) -> bool:
        """Whether some element differs, the engine failed, or nothing could be compared."""
        both = (self.random, self.tied)
        return any(a.exact < a.elements or a.errors or not a.elements for a in both)

    @property
    def explained(self) -> bool:
        """Whether a declared defect of the engine may explain the difference."""
        return bool(self.defects)


def pair(target: Target, engine: Engine, elements: int) -> Pairing:
    """Compare *engine* with the built-in functions on both populations of *target*."""
    platform = target.platform
    known = [
        defect
        for defect in platform.defects
        if defect.engine and defect.concerns(target.spec.op) and concerns(defect, engine, platform.platform)
    ]
    return Pairing(
        engine.identity(platform.platform),
        engine.version,
        label(engine.isa),
        target,
        compare(target, engine, "random", elements),
        compare(target, engine, "tied", elements),
        tuple(known),
    )


def percent(found: Agreement) -> str:
    """Return the share of equal elements in percent, never rounded up to 100 %."""
    if not found.elements:
        return "none ran"
    if found.exact == found.elements:
        return "100 %"
    # four places would round 99.99999 up to 100
    return f"{min(99.9999, 100 * found.fraction):.4f} %"


def summary(pairings: Sequence[Pairing]) -> str:
    """Return the table for a terminal, and one line that sums it up."""
    rows = [{"instructions": pairing.isa, **_row(pairing)} for pairing in pairings]
    equal = sum(not pairing.differs for pairing in pairings)
    elements = sum(p.random.elements + p.tied.elements for p in pairings)
    line = f"{len(pairings)} pairings, {equal} bit for bit; {elements:,} elements"
    return f"{tabulate(rows, headers='keys', disable_numparse=True)}\n\n{line}"


def document(pairings: Sequence[Pairing], before: str = "") -> str:
    """Return the markdown document: the processor, a table for each engine, and every first case that differs.

    Each instruction-set level at which an engine ran has its own columns. *before*: an older document, from which
    engines that were not measured now keep their part.
    """
    engines = list(dict.fromkeys((p.engine, p.version, p.target.platform.platform) for p in pairings))
    lines = [
        "# Real engines and their platforms, element by element",
        "",
        "Written by `quantizer engine agreement -o docs/agreement.md`. The tables compare the codes of",
        "the real engine with those of our functions of the platform, under the same provided parameters, on "
        "generated cases.",
        "",
        "* *random*: random data under scales of any value.",
        "* *tied*: scales are powers of two, so that sums lie exactly between two codes.",
        "* *largest*: the largest difference in codes.",
        "* *refused*: cases that the engine cannot express.",
        "* On `float32_any_order` every order of float32 operations is right, so one code beside a tie is no fault.",
        "* An engine that can be restricted to a level of instruction sets (`--op-isa`) has columns for each level.",
        "  *unpinned*: it uses whatever instruction sets its processor has.",
        "",
    ]
    for name, version, platform in engines:
        own = [p for p in pairings if (p.engine, p.target.platform.platform) == (name, platform)]
        levels = list(dict.fromkeys(p.isa for p in own))
        said = f"Processor: {processor()}. Instructions: {', '.join(levels)}."
        lines += [f"## {name} {version} on platform {platform}", "", said, "", *_markdown(_rows(own, levels)), ""]
        for pairing in own:
            lines += _explanation(pairing)
    measured = {f"{name} on platform {platform}" for name, _, platform in engines}
    lines += [part for title, part in _parts(before) if title not in measured]
    return "\n".join(lines).rstrip() + "\n"


def _parts(document: str) -> Iterator[tuple[str, str]]:
    """Yield the parts of a document, each with its engine and platform."""
    for part in document.split("\n## ")[1:]:
        name, _, rest = part.splitlines()[0].partition(" ")
        yield f"{name} {rest[rest.index('on platform') :]}", f"## {part.rstrip()}\n"


def _markdown(rows: list[dict[str, str]]) -> list[str]:
    return tabulate(rows, headers="keys", tablefmt="github", disable_numparse=True).splitlines()


def _rows(pairings: Sequence[Pairing], levels: Sequence[str]) -> list[dict[str, str]]:
    """Return a row for each target; with several *levels*, the results at each level have their own columns."""
    found: dict[str, dict[str, str]] = {}
    for pairing in pairings:
        row = found.setdefault(pairing.target.id, {})
        for name, text in _row(pairing).items():
            if name in ("engine", "platform"):
                continue
            heading = f"{name}, {pairing.isa}" if len(levels) > 1 and name in MEASURED else name
            row[heading] = text
    return [{name: row.get(name, "") for name in _headings(found.values())} for row in found.values()]


def _headings(rows: Iterable[dict[str, str]]) -> list[str]:
    """Return the headings of all rows: targets first, then the results, level by level."""
    every = list(dict.fromkeys(name for row in rows for name in row))
    return [name for name in every if name in NAMED] + [name for name in every if name not in NAMED]


def _row(pairing: Pairing) -> dict[str, str]:
    random, tied = pairing.random, pairing.tied
    return {
        "engine": pairing.engine,
        "platform": pairing.target.platform.platform,
        "operator": pairing.target.spec.op,
        "scheme": pairing.target.scheme.name,
        "random": percent(random),
        "tied": percent(tied),
        "elements": f"{random.elements:,} + {tied.elements:,}",
        "largest": str(max(random.largest, tied.largest)),
        "refused": str(random.refused + tied.refused),
        "explained by": ", ".join(defect.id for defect in pairing.defects if pairing.differs) or "",
    }


def _explanation(pairing: Pairing) -> list[str]:
    """Return why a pairing is below 100 %, and the first case that differs."""
    target, both = pairing.target, (pairing.random, pairing.tied)
    # any order of float32 operations is right there, so a difference of one code needs no explanation
    is_enclosed = target.platform.enclosing is not None and not any(a.largest > 1 or a.errors for a in both)
    if not pairing.differs or is_enclosed:
        return []
    lines = [f"**{target.spec.op} {target.scheme.name}**, {pairing.isa}", ""]
    lines += [f"* `{defect.id}`: {in_markdown(defect.reason)}" for defect in pairing.defects]
    for name, found in (("random", pairing.random), ("tied", pairing.tied)):
        lines += [f"* {name}, the engine failed: {text}" for text in sorted(set(found.errors))[:2]]
        if found.first is not None:
            lines.append(
                f"* {name}, first case: {graph_line(found.first)}, data {found.first.data.set}, {found.first.digest}"
            )
            lines += ["", "  ```json", f"  {found.first.to_json()}", "  ```", ""]
    return [*lines, ""]
