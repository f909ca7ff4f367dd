"""Writes docs/defects.md: every declared defect of a real system, with its smallest case."""

from __future__ import annotations

from pathlib import Path

from quantizer.conformance.failures.message import graph_line
from quantizer.conformance.stored.files import read_replay
from quantizer.core.defects import Defect, GraphDefect
from quantizer.core.levels import DEFAULT, LEVELS
from quantizer.core.library import Library
from quantizer.core.platforms import Platform
from quantizer.core.processor import INSTRUCTIONS
from quantizer.core.rooms import room_of
from quantizer.core.wording import in_markdown, shown_path
from quantizer.runtime.engines.pins import instruction_sets, pins_of


def defects_document(library: Library) -> str:
    """Return the page in markdown; CaseError for a stored case that cannot be read."""
    lines = [
        "# Known defects of real systems",
        "",
        "Written by `quantizer engine defects -o docs/defects.md` from the rooms of platforms. A generated case "
        "found each",
        "defect. Its stored case must fail as declared, otherwise the gate fails. A defect of a *platform* is "
        "computed by our functions",
        "too. A defect of an *engine* was seen in the running system, in the named versions; our functions of the "
        "platform do not have",
        "it. [gallery.md](gallery.md) ranks them by severity, with stand-alone scripts. Where an engine can be "
        "restricted to a level of instruction sets (`--op-isa`), its defects name the levels that show them.",
        "",
    ]
    for platform in library.platforms.values():
        if platform.defects or platform.graph_defects:
            lines += [f"## {platform.platform}", ""]
        for defect in platform.defects:
            lines += _entry(platform, defect)
        for fused in platform.graph_defects:
            lines += _graph_entry(fused)
    return "\n".join(lines).rstrip() + "\n"


def _entry(platform: Platform, defect: Defect) -> list[str]:
    room = room_of(platform.platform)
    path = Path(defect.case) if room is None else room.cases / defect.case
    case = read_replay(path).case
    who = f"engine {defect.engine} {', '.join(defect.versions)}" if defect.engine else f"platform {platform.platform}"
    engine = f" --op-engine={defect.engine} --op-platform={platform.platform}{_option(defect)}" if defect.engine else ""
    return [
        f"### {defect.id}",
        "",
        f"* **{who}**: {in_markdown(defect.reason)}",
        *_severity(defect),
        f"* operators: {', '.join(defect.ops or ['all'])}; where `{defect.predicate}`; seen by: "
        f"{', '.join(defect.checks)}"
        + ("; other numbers in every run" if defect.unstable else "")
        + ("; only results that are as stated" if defect.computes else "")
        + _processors(defect),
        f"* smallest case: `{graph_line(case)}`, data {case.data.set}, in `{shown_path(path)}`",
        f"* shown by: `pytest 'op_specs/{case.op}.yaml::{case.op}-regressions'{engine}`",
        "",
    ]


def _graph_entry(defect: GraphDefect) -> list[str]:
    """Return the entry of a defect that shows only where nodes are fused."""
    script = [f"* script: [{defect.script}](../examples/gallery/{defect.script})"] if defect.script else []
    return [
        f"### {defect.id}",
        "",
        f"* **engine {defect.engine} {', '.join(defect.versions)}, in graphs**: {in_markdown(defect.reason)}",
        *_severity(defect),
        f"* node: {defect.op}; where `{defect.predicate}`",
        *script,
        f"* shown by: `quantizer fusion {defect.graph} --engine {defect.engine.partition(':')[0]} --cases 8`",
        "",
    ]


def _severity(defect: Defect | GraphDefect) -> list[str]:
    """Return the line with the severity of a defect, its cause and its reports."""
    if defect.severity is None:
        return []
    root = f"; one root with others: {defect.root}" if defect.root else ""
    cause = f"; cause: {in_markdown(defect.cause)}" if defect.cause else ""
    upstream = f"; upstream: {', '.join(f'<{address}>' for address in defect.upstream)}" if defect.upstream else ""
    return [f"* severity: {defect.severity.replace('_', ' ')}{root}{cause}{upstream}"]


def levels_of(defect: Defect) -> tuple[str, ...]:
    """Return the levels of `--op-isa` that show *defect*; empty if its engine cannot be restricted to levels."""
    backend = (defect.engine or "").partition(":")[0]
    if not pins_of(backend).pins:
        return ()
    return tuple(level for level in LEVELS if defect.seen_with(instruction_sets(backend, level, INSTRUCTIONS, {})))


def _option(defect: Defect) -> str:
    """Return the option that limits the engine to a level that shows *defect*; empty if the default level does."""
    held = levels_of(defect)
    return f" --op-isa={held[0]}" if held and DEFAULT not in held else ""


def _processors(defect: Defect) -> str:
    backend = (defect.engine or "").partition(":")[0]
    # for an engine with levels, the processor's sets are said by the levels that a user can select
    if pins_of(backend).pins and (defect.needs or defect.lacks):
        held = levels_of(defect)
        where = (
            f"at --op-isa={', '.join(held)}" if held else "at no level of --op-isa, under variables of the environment"
        )
        return f"; {where}{_sets(defect, ': ')}"
    return _sets(defect, "; on processors ")


def _sets(defect: Defect, before: str) -> str:
    named = [f"with {name}" for name in defect.needs] + [f"without {name}" for name in defect.lacks]
    return f"{before}{', '.join(named)}" if named else ""
