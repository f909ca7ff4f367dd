"""A diff for people and programs: terminal, markdown, JSON; the same diff gives the same bytes."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict

from quantizer.reporting.diff import CoverageChange, Diff, ItemAppearance, ItemChange, RatioChange
from quantizer.reporting.figures import (
    NOTHING,
    count_text,
    counted,
    factor_text,
    figure,
    lsb_text,
    ratio_text,
    ratio_texts,
    wrapped,
)
from quantizer.reporting.markdown import MAX_BYTES
from quantizer.reporting.tables import Column, Section, capped, text_table

VERSION = 1

FORMATS = ("terminal", "markdown", "json")


def render(diff: Diff, form: str, *, limit: int = 20, width: int = 100, max_bytes: int = MAX_BYTES) -> str:
    """Return the diff in one of `FORMATS`; *limit* and *width* are the terminal's, *max_bytes* is markdown's."""
    if form == "json":
        return as_json(diff)
    if form == "markdown":
        return as_markdown(diff, max_bytes=max_bytes)
    if form != "terminal":
        raise ValueError(f"form: must be one of {', '.join(FORMATS)}, got {form!r}.")
    return "".join(line + "\n" for line in as_terminal(diff, limit=limit, width=width))


def as_terminal(diff: Diff, *, limit: int = 20, width: int = 100) -> list[str]:
    """Return the diff as lines, at most *limit* rows a table."""
    lines = [part for line in diff_headline(diff) for part in wrapped(line, width)]
    for section in diff_sections(diff):
        if section.rows:
            table = text_table(section, limit=limit, width=width - 2, path="--format json lists all")
            lines += ["", section.title.lower(), *(f"  {line}" for line in table)]
    return lines


def as_markdown(diff: Diff, *, max_bytes: int = MAX_BYTES) -> str:
    """Return the diff as GitHub markdown of at most *max_bytes*."""
    return capped(["## Compared with the baseline", "", *diff_headline(diff)], diff_sections(diff), max_bytes)


def as_json(diff: Diff) -> str:
    """Return the diff as one JSON object; an infinite ratio is the string "inf"."""
    plain = asdict(diff) | {"version": VERSION}
    for name in ("grown", "shrunk"):
        changes: Iterable[RatioChange] = getattr(diff, name)
        plain[name] = [asdict(change) | {"factor": change.factor, "grown_lsb": change.grown_lsb} for change in changes]
    return json.dumps(_finite(plain), sort_keys=True, indent=2, allow_nan=False) + "\n"


def _finite(value: object) -> object:
    if isinstance(value, Mapping):
        return {key: _finite(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(item) for item in value]
    return "inf" if isinstance(value, float) and math.isinf(value) else value


def diff_headline(diff: Diff) -> list[str]:
    """Return what changed, in one sentence of counts."""
    counts = [
        (len(diff.new_failures), "new failure", "new failures"),
        (len(diff.fixed), "fixed", "fixed"),
        (len(diff.still_failing), "still failing", "still failing"),
        (len(diff.grown), "error grown", "errors grown"),
        (len(diff.shrunk), "error shrunk", "errors shrunk"),
        (len(diff.lost), "loss of coverage", "losses of coverage"),
        (len(diff.gained), "gain of coverage", "gains of coverage"),
        (len(diff.added), "item added", "items added"),
        (len(diff.removed), "item removed", "items removed"),
    ]
    words = [f"{count:,} {one if count == 1 else many}" for count, one, many in counts if count]
    if diff.is_empty:
        words.insert(0, "no change")
    items = f"{counted(diff.base_items, 'item')} before, {diff.run_items:,} now"
    return [f"{items}: {', '.join(words)}."]


_ITEM = Column("item", cut="middle", code=True)
_CHECK = Column("check", cut="middle", code=True)


def diff_sections(diff: Diff) -> list[Section]:
    """Return every list of the diff as a table, the most urgent first."""
    return [
        _failures("New failures", diff.new_failures),
        _appearances("Items removed", diff.removed),
        _coverage("Coverage lost", diff.lost),
        _ratios("Errors grown", diff.grown),
        _failures("Still failing", diff.still_failing),
        _fixed(diff.fixed),
        _ratios("Errors shrunk", diff.shrunk),
        _coverage("Coverage gained", diff.gained),
        _appearances("Items added", diff.added),
    ]


def _failures(title: str, changes: Iterable[ItemChange]) -> Section:
    columns = (
        _ITEM,
        Column("before", code=True),
        Column("now", code=True),
        Column("checks", cut="end", code=True),
        Column("failure", cut="end", code=True),
    )
    rows = tuple(
        (change.id, change.before or "new", change.after, _failing(change) or NOTHING, change.failure or NOTHING)
        for change in changes
    )
    return Section(title, columns, rows)


def _failing(change: ItemChange) -> str:
    return ", ".join(f"{name} {ratio_text(ratio)}" for name, ratio in change.checks)


def _fixed(changes: Iterable[ItemChange]) -> Section:
    columns = (_ITEM, Column("before", code=True), Column("now", code=True))
    return Section("Fixed", columns, tuple((change.id, change.before, change.after) for change in changes))


def _ratios(title: str, changes: Sequence[RatioChange]) -> Section:
    columns = [_ITEM, _CHECK, *(Column(name, right=True) for name in ("before", "now", "factor"))]
    rows = [
        (change.id, change.check, *ratio_texts(change.before, change.after), factor_text(change.factor))
        for change in changes
    ]
    if any(change.lsb_before is not None or change.lsb_after is not None for change in changes):
        columns[2:4] = [Column(name, right=True) for name in ("ratio before", "ratio now")]
        columns += [Column(name, right=True) for name in ("LSB before", "LSB now", "LSB grown")]
        errors = [(lsb_text(c.lsb_before), lsb_text(c.lsb_after), _grown(c)) for c in changes]
        rows = [(*row, *error) for row, error in zip(rows, errors, strict=True)]
    note = (
        "Ratio = error / allowed. LSB: the worst error end to end, in steps of the output." if len(columns) > 5 else ""
    )
    return Section(title, tuple(columns), tuple(rows), note=note)


def _grown(change: RatioChange) -> str:
    grown = change.grown_lsb
    return f"{'+' if grown > 0 else '-'}{lsb_text(abs(grown))}" if grown else NOTHING


def subject(change: CoverageChange) -> str:
    """Return what the two figures of a coverage change count."""
    return {
        "outcome": "outcome",
        "cases": "cases",
        "check": f"{change.name}: verdicts",
        "verdicts": f"{change.name}: verdicts",
        "holes": f"{change.name}: holes",
        "sharpness": f"{change.name}: codes in the widest interval",
    }.get(change.what, change.name)


def _coverage(title: str, changes: Iterable[CoverageChange]) -> Section:
    columns = (
        _ITEM,
        Column("what", cut="middle", code=True),
        Column("before", right=True),
        Column("now", right=True),
    )
    rows = tuple((c.id, subject(c), figure(c.before), figure(c.after)) for c in changes)
    return Section(title, columns, rows)


def _appearances(title: str, items: Iterable[ItemAppearance]) -> Section:
    columns = (
        _ITEM,
        Column("kind", code=True),
        Column("outcome", code=True),
        Column("cases", right=True),
        Column("holes", right=True),
    )
    rows = tuple((item.id, item.kind, item.outcome, count_text(item.cases), count_text(item.holes)) for item in items)
    return Section(title, columns, rows)
