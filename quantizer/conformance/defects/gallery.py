"""Writes the ranked page of declared defects of real systems, each with its stand-alone script.

Entries with the same root share a row, because the page counts causes, not cases. The outcomes of the scripts' last
run are stored next to them.
"""

from __future__ import annotations

import hashlib
import json
import math
import re
import subprocess
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from quantizer.conformance.defects.script_choice import engine_of, file_name, of_root, script_of_defect, stored_case
from quantizer.conformance.failures.message import graph_line
from quantizer.conformance.setup.session import Session
from quantizer.conformance.stored.files import read_replay
from quantizer.core.case import Case
from quantizer.core.defects import SEVERITIES, Defect, GraphDefect, Severity
from quantizer.core.errors import QuantizerError, UnsupportedError
from quantizer.core.library import load_library
from quantizer.core.platforms import Platform
from quantizer.core.reading import Readable
from quantizer.core.rooms import engines
from quantizer.core.wording import counted, in_markdown, shown_path
from quantizer.reporting.complete_run import read_complete_run
from quantizer.reporting.store import read_run
from quantizer.runtime.engines.catalogue import Chosen

SCRIPTS, PAGE = Path("examples/gallery"), Path("docs/gallery.md")
OUTCOMES = SCRIPTS / "outcomes.json"
BASELINES = Path("reports/baselines")
RUNS = SCRIPTS / "runs.json"
"""The number of cases in a gate run of each guest engine, which has no baseline."""
PATIENCE = 120.0
"""The time limit of one script, in seconds."""
DESIGN: Severity = "design"
MEANINGS: Mapping[str, str] = {
    "memory": "The process ends, or memory is read that is not the operator's.",
    "wrong": "Results beyond any rounding: a wrapped or saturated sum, a wrong sign, another channel's number.",
    "off_by_one": "Results next to the right one, which other kernels or the documentation of the system contradict.",
    DESIGN: "Two roundings or two approximations, both defensible; they matter only if codes are compared.",
}
HEADINGS: Mapping[str, str] = {"memory": "Memory", "wrong": "Wrong", "off_by_one": "Off by one", DESIGN: "By design"}
_OUTCOMES = Readable("outcomes of scripts", 1 << 22, QuantizerError)
_RUNS = Readable("numbers of cases", 1 << 16, QuantizerError)


@dataclass(frozen=True)
class Entry:
    """A declared defect, its smallest case, and its script, which is empty if no engine runs the case."""

    platform: Platform
    defect: Defect
    case: Case
    engine: str
    script: str
    cause: str = ""
    upstream: tuple[str, ...] = ()

    @property
    def root(self) -> str:
        """The name of the defect's cause."""
        return self.defect.root or f"{self.platform.platform}/{self.defect.id}"

    @property
    def size(self) -> int:
        """The number of elements of all operands of the case."""
        return sum(math.prod(shape) for shape in self.case.shapes.values())

    @property
    def key(self) -> str:
        """The key of its recorded outcome: engine, platform and case, but not the entry's name, which may change."""
        digest = hashlib.sha256(json.dumps(self.case.to_dict(), sort_keys=True).encode()).hexdigest()
        return f"{self.defect.engine or self.engine} on {self.platform.platform}, case {digest[:12]}"

    @property
    def name(self) -> str:
        """The file name of its script."""
        return file_name(self.platform, self.defect)


def entries(session: Session) -> list[Entry]:
    """Return every declared defect: by severity, the worst first, then by the size of the case."""
    found = []
    for platform in session.library.platforms.values():
        for defect in platform.defects:
            case = read_replay(stored_case(platform, defect)).case
            try:
                engine = engine_of(platform, defect).name
            except UnsupportedError:  # no engine that a script could run
                script, engine = "", platform.platform
            else:
                script = script_of_defect(session, platform, defect)
            cause, upstream = of_root(session.library, defect)
            found.append(Entry(platform, defect, case, engine, script, cause, upstream))
    ranks = {severity: rank for rank, severity in enumerate(SEVERITIES)}
    return sorted(found, key=lambda e: (ranks.get(e.defect.severity or DESIGN, 9), e.size, e.engine, e.name))


def files(session: Session, root: Path) -> dict[Path, str]:
    """Return path -> content of the page and of the scripts; outcomes are read from *root*."""
    known = entries(session)
    outcomes = read_outcomes(root / OUTCOMES)
    text = page(known, outcomes, cases_of_runs(root))
    return {PAGE: text, **{SCRIPTS / entry.name: entry.script for entry in known if entry.script}}


def cases_of_runs(root: Path) -> dict[str, int]:
    """Return engine -> number of cases in a gate run, for engines with a baseline in *root* or a recorded run."""
    known = engines()
    paths = sorted((root / BASELINES).glob("*.jsonl"))
    found = {path.stem: sum(record.cases for record in read_run(path)) for path in paths if path.stem in known}
    return dict(sorted({**read_runs(root / RUNS), **found}.items()))


def read_runs(path: Path) -> dict[str, int]:
    """Return the recorded numbers of cases by engine; empty without a file."""
    if not path.is_file():
        return {}
    found = _RUNS.json_of(path)
    if not isinstance(found, dict) or not all(type(count) is int for count in found.values()):
        raise _RUNS.refused(shown_path(path), "must hold a whole number for each engine")
    return dict(found)


def with_runs(before: Mapping[str, int], folders: Iterable[Path]) -> dict[str, int]:
    """Return *before* with the numbers of cases of the whole runs in *folders*; IncompleteRunError for other runs."""
    found = dict(before)
    for folder in folders:
        records, facts = read_complete_run(folder)
        found[facts.engine.partition(" ")[0]] = sum(record.cases for record in records)
    return dict(sorted(found.items()))


def yields(known: Iterable[Entry], cases: Mapping[str, int]) -> str:
    """Return the number of causes that a gate run shows per million cases.

    It has one significant digit, because the number of cases in a run grows slowly all the time.
    """
    causes = {
        name: len({e.root for e in known if e.engine.partition(":")[0] == name and e.defect.severity != DESIGN})
        for name in cases
    }
    figures = [
        f"{name} about {float(f'{1e6 * causes[name] / count:.0e}'):,.0f} ({counted(causes[name], 'cause')})"
        for name, count in cases.items()
        if count
    ]
    return f"Causes per 10^6 cases of one gate run: {', '.join(figures)}." if figures else ""


def page(
    known: Sequence[Entry], outcomes: Mapping[str, Mapping[str, str]], cases: Mapping[str, int] | None = None
) -> str:
    """Return the gallery in markdown: defects by severity, each with its script and its output (*outcomes*).

    *cases*: engine -> number of cases in a run.
    """
    shown = [entry for entry in known if entry.script]
    roots = {severity: _grouped(e for e in shown if e.defect.severity == severity) for severity in SEVERITIES}
    count = {severity: len(groups) for severity, groups in roots.items()}
    defective = {e.engine for e in shown if e.defect.severity != DESIGN}
    lines = [
        "# Gallery of defects",
        "",
        "Written by `quantizer engine defects --gallery` from the rooms of platforms. Generated cases found these "
        "defects in shipping engines.",
        "Each row is one cause, with its smallest case, and a script of the engine's own API and numpy. The script "
        "needs nothing of",
        "quantizer. It prints versions, the expected codes and those that came, and ends with another status than 0 "
        "where they differ:",
        "",
        f"    python {SCRIPTS}/{max(shown, key=lambda entry: entry.defect.severity == 'wrong').name}",
        "",
        f"**{sum(n for s, n in count.items() if s != DESIGN)} distinct causes** in {len(defective)} engines"
        f" ({', '.join(sorted(defective))}):"
        f" {', '.join(f'{count[s]} {HEADINGS[s].lower()}' for s in SEVERITIES if s != DESIGN)}."
        f" {count[DESIGN]} differences by design are listed apart and are not counted.",
        "[defects.md](defects.md) has every entry with its condition and its checks. `quantizer case repro FILE` "
        "writes such a script of",
        "any stored case.",
        "",
        *filter(None, [yields(shown, cases or {})]),
        "",
    ]
    for severity in SEVERITIES:
        lines += [f"## {HEADINGS[severity]}", "", MEANINGS[severity], ""]
        lines += ["| engine | what | smallest case | expected, got | scripts |", "|---|---|---|---|---|"]
        lines += [_row(group, outcomes) for group in roots[severity]]
        lines.append("")
    return "\n".join([*lines, *_in_graphs(), *_without_engine(known)]) + "\n"


def _in_graphs() -> list[str]:
    """Return the table of defects that show only where an engine fuses nodes of a graph, the worst first."""
    ranks = {severity: rank for rank, severity in enumerate(SEVERITIES)}
    found = [defect for platform in load_library().platforms.values() for defect in platform.graph_defects]
    rows = [
        f"| {d.engine} {', '.join(d.versions)} | {HEADINGS[d.severity or DESIGN].lower()} | {_what(d)} | "
        f"[{d.graph}](../graph_specs/{d.graph}.yaml) | {_script_link(d.script)} |"
        for d in sorted(found, key=lambda d: ranks[d.severity or DESIGN])
    ]
    return [
        "## In graphs",
        "",
        "These defects show where an engine fuses nodes. `quantizer fusion GRAPH --engine NAME` found them. They "
        "are not counted above.",
        "",
        "| engine | severity | what | graph | script |",
        "|---|---|---|---|---|",
        *rows,
        "",
    ]


def _what(defect: GraphDefect) -> str:
    cause = f" Cause: {in_markdown(defect.cause)}." if defect.cause else ""
    return f"{in_markdown(defect.reason)}.{cause}".replace("|", "\\|")


def _script_link(script: str) -> str:
    return f"[{_words(script)}](../{SCRIPTS}/{script})" if script else "none"


def _grouped(known: Iterable[Entry]) -> list[list[Entry]]:
    """Group entries by cause, in the order of the first entry of each cause."""
    found: dict[str, list[Entry]] = {}
    for entry in known:
        found.setdefault(entry.root, []).append(entry)
    return [*found.values()]


def _row(group: Sequence[Entry], outcomes: Mapping[str, Mapping[str, str]]) -> str:
    first = group[0]
    cause = f" Cause: {in_markdown(first.cause)}." if first.cause else ""
    links = first.upstream
    upstream = f" Upstream: {', '.join(f'[{_short(a)}]({a})' for a in links)}." if links else ""
    names = dict.fromkeys(_engine_and_versions(entry) for entry in group)
    # words instead of the file name, because a long name does not wrap and makes the table too wide
    scripts = ", ".join(f"[{_words(e.name)}](../{SCRIPTS}/{e.name})" for e in group)
    # the entry that explains the cause speaks for its group
    told = next((entry.defect for entry in group if entry.defect.cause), first.defect)
    seen = _also_seen(told, [entry.defect for entry in group])
    what = f"{in_markdown(told.reason)}.{seen}{cause}{upstream}".replace("..", ".").replace("|", "\\|")
    case = graph_line(first.case).replace("|", "\\|")
    return f"| {'; '.join(names)} | {what} | `{case}` | {_outcome(group, outcomes)} | {scripts} |"


def _also_seen(told: Defect, defects: Iterable[Defect]) -> str:
    """Return a sentence with further operators in which the same cause shows; empty if there are none."""
    if told.ops is None:
        return ""
    others = sorted({op for defect in defects for op in defect.ops or ()} - {*told.ops})
    return f" The same cause shows in {', '.join(others)}." if others else ""


def _words(script: str) -> str:
    return Path(script).stem.replace("_", " ")


def _engine_and_versions(entry: Entry) -> str:
    named = entry.defect.engine or entry.engine
    return f"{named} {', '.join(entry.defect.versions)}".strip()


def _outcome(group: Sequence[Entry], outcomes: Mapping[str, Mapping[str, str]]) -> str:
    """Return what the last run of the group's scripts gave: the first case that differs, the smallest first."""
    known = [outcomes[e.key] for e in group if e.key in outcomes]
    for found in known:
        if found["outcome"] != "agrees":
            got = found["got"] or found["outcome"]
            return f"{found['expected']}, {got} ({found['versions']})"
    return f"agrees where it ran last ({known[0]['versions']})" if known else "not recorded"


def _short(address: str) -> str:
    owner, repository, _, number = address.rsplit("/", 3)
    return f"{repository}#{number}" if owner else address


def _without_engine(known: Sequence[Entry]) -> list[str]:
    """Return the table of defects whose systems are not engines here."""
    left = [entry for entry in known if not entry.script]
    if not left:
        return []
    lines = [
        "## Systems without an engine here",
        "",
        "These defects are those of platforms whose system is not an engine of this package. Our functions of the "
        "platform compute them, and their",
        "stored cases must fail as declared.",
        "",
        "| platform | severity | what | smallest case |",
        "|---|---|---|---|",
    ]
    return lines + [
        f"| {e.platform.platform} | {HEADINGS.get(e.defect.severity or '', 'not stated').lower()} | "
        f"{in_markdown(e.defect.reason)} | `{graph_line(e.case)}` |".replace("|| ", "| ")
        for e in left
    ]


def read_outcomes(path: Path) -> dict[str, dict[str, str]]:
    """Return the recorded outputs of scripts by key; empty without a file."""
    if not path.is_file():
        return {}
    found = _OUTCOMES.json_of(path)
    rows = list(found.values()) if isinstance(found, dict) else [None]
    if not all(isinstance(row, dict) and all(isinstance(text, str) for text in row.values()) for row in rows):
        raise _OUTCOMES.refused(shown_path(path), "must hold texts by name for each script")
    return dict(found)


def recorded(
    known: Sequence[Entry], before: Mapping[str, Mapping[str, str]], *, missing: bool = False
) -> dict[str, Mapping[str, str]]:
    """Run every script whose engine is installed here, and return all outcomes by key.

    The other scripts keep their outcomes from *before*. *missing*: run only scripts that have no outcome yet.
    """
    found = {entry.key: before[entry.key] for entry in known if entry.key in before}
    for entry in known:
        if missing and entry.key in found:
            continue
        if entry.script and not (chosen := Chosen(entry.engine)).missing:
            found[entry.key] = outcome_of(entry.script, chosen.command[0])
    return dict(sorted(found.items()))


def outcome_of(script: str, python: str) -> dict[str, str]:
    """Run *script* in a folder where this package cannot be imported; return its output.

    *python*: an interpreter that has the engine. QuantizerError if the script prints nothing.
    """
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "script.py"
        path.write_text(script, encoding="utf-8")
        # -I: neither the current folder nor variables such as PYTHONPATH are read
        done = subprocess.run(  # noqa: S603 - a script that was just written
            [python, "-I", str(path)], capture_output=True, text=True, check=False, timeout=PATIENCE, cwd=folder
        )
    said = done.stdout.splitlines()
    expected = next((line for line in said if line.startswith("expected ")), None)
    if expected is None:
        raise QuantizerError(f"{script.splitlines()[0]}: the script ended with {done.returncode}: {done.stderr[-400:]}")
    return {"versions": said[0], **_read(said, expected, done.returncode, done.stderr)}


def _read(said: Sequence[str], expected: str, status: int, errors: str) -> dict[str, str]:
    facts: dict[str, Any] = {}
    for line in said:
        if match := re.fullmatch(r"(expected is|got)\s+(\[.*\])", line):
            facts[match[1]] = match[2]
    wanted = facts.get("expected is", expected.removeprefix("expected ").strip())
    # some engines print a line of their own as the process ends
    if outcome := next((line for line in reversed(said) if line in ("differs", "agrees")), None):
        return {"expected": wanted, "got": facts.get("got", ""), "outcome": outcome}
    raised = [line for line in errors.strip().splitlines() if re.match(r"[\w.]+(: |$)", line)]  # stacks may follow it
    ended = f"the process ends with signal {-status}" if status < 0 else f"it raises {(raised or [''])[-1][:100]}"
    return {"expected": wanted, "got": "", "outcome": ended}
