"""Writes a diff for the terminal, as markdown or as JSON. The same diff gives the same bytes."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import asdict, replace
from typing import Any

from msgspec import DecodeError
from msgspec.json import format as indented
from msgspec.structs import asdict as fields_of

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
from quantizer.reporting.tables import MAX_BYTES, Column, Row, Rows, Section, capped, text_table

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
    ratios = {name: list(map(_plain_ratio, getattr(diff, name))) for name in ("grown", "shrunk")}
    # without the ratios: there may be a million, and asdict would copy each
    others = asdict(replace(diff, grown=(), shrunk=()))
    plain = _finite(others | ratios) | {"version": VERSION}
    try:
        # Python's json is fast only without indentation
        return indented(json.dumps(plain, sort_keys=True, allow_nan=False), indent=2) + "\n"
    except DecodeError:  # the text of a failure may hold half of a surrogate pair
        return json.dumps(plain, sort_keys=True, allow_nan=False, indent=2) + "\n"


def _plain_ratio(change: RatioChange) -> dict[str, object]:
    return fields_of(change) | {"factor": change.factor, "grown_lsb": change.grown_lsb}


def _finite(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _finite(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(item) for item in value]
    return "inf" if value == math.inf else value


def diff_headline(diff: Diff) -> list[str]:
    """Return the changes as one sentence of counts, and the engines if they differ."""
    counts = [
        (len(diff.new_failures), "new failure", "new failures"),
        (len(diff.fixed), "fixed", "fixed"),
        (len(diff.still_failing), "still failing", "still failing"),
        (len(diff.grown_otherwise), "error grown", "errors grown"),
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
    engines = [f"{old} before, {new} now." for old, new in diff.engines]
    return [f"{items}: {', '.join(words)}.", *engines]


_ITEM = Column("item", cut="middle", code=True)
_CHECK = Column("check", cut="middle", code=True)


def diff_sections(diff: Diff) -> list[Section]:
    """Return every list of the diff as a table, the most urgent first."""
    return [
        _failures("New failures", diff.new_failures),
        _appearances("Items removed", diff.removed),
        _coverage("Coverage lost", diff.lost),
        _ratios("Errors grown", diff.grown_otherwise),
        _failures("Still failing", diff.still_failing),
        _fixed(diff.fixed),
        _ratios("Errors shrunk", diff.shrunk),
        _coverage("Coverage gained", diff.gained),
        _appearances("Items added", diff.added),
    ]


def _failures(title: str, changes: Sequence[ItemChange]) -> Section:
    columns = (
        _ITEM,
        Column("before", code=True),
        Column("now", code=True),
        Column("checks", cut="end", code=True),
        Column("failure", cut="end", code=True),
    )
    return Section(title, columns, Rows(changes, _failure_row))


def _failure_row(change: ItemChange) -> Row:
    checks = ", ".join(f"{name} {ratio_text(ratio)}" for name, ratio in change.checks)
    return change.id, change.before or "new", change.after, checks or NOTHING, change.failure or NOTHING


def _fixed(changes: Sequence[ItemChange]) -> Section:
    columns = (_ITEM, Column("before", code=True), Column("now", code=True))
    return Section("Fixed", columns, Rows(changes, lambda change: (change.id, change.before, change.after)))


def _ratios(title: str, changes: Sequence[RatioChange]) -> Section:
    columns = [_ITEM, _CHECK, *(Column(name, right=True) for name in ("before", "now", "factor"))]
    write = _ratio_row
    if any(change.lsb_before is not None or change.lsb_after is not None for change in changes):
        # with errors beside ratios, the headings say which figure is which
        columns[2:4] = [Column(name, right=True) for name in ("ratio before", "ratio now")]
        columns += [Column(name, right=True) for name in ("LSB before", "LSB now", "LSB grown")]
        write = _ratio_and_error_row
    note = (
        "Ratio = error / allowed. LSB: the worst error end to end, in steps of the output." if len(columns) > 5 else ""
    )
    return Section(title, tuple(columns), Rows(changes, write), note=note)


def _ratio_row(change: RatioChange) -> Row:
    return (change.id, change.check, *ratio_texts(change.before, change.after), factor_text(change.factor))


def _ratio_and_error_row(change: RatioChange) -> Row:
    return (*_ratio_row(change), lsb_text(change.lsb_before), lsb_text(change.lsb_after), _grown(change))


def _grown(change: RatioChange) -> str:
    grown = change.grown_lsb
    return f"{'+' if grown > 0 else '-'}{lsb_text(abs(grown))}" if grown else NOTHING


def subject(change: CoverageChange) -> str:
    """Return the unit of the two figures of a coverage change."""
    return {
        "outcome": "outcome",
        "cases": "cases",
        "data sets": "data sets",
        "check": f"{change.name}: verdicts",
        "verdicts": f"{change.name}: verdicts",
        "inconclusive": f"{change.name}: inconclusive",
        "sharpness": f"{change.name}: codes in the widest interval",
    }.get(change.what, change.name)


def _coverage(title: str, changes: Sequence[CoverageChange]) -> Section:
    columns = (
        _ITEM,
        Column("what", cut="middle", code=True),
        Column("before", right=True),
        Column("now", right=True),
    )
    return Section(title, columns, Rows(changes, _coverage_row))


def _coverage_row(change: CoverageChange) -> Row:
    return change.id, subject(change), figure(change.before), figure(change.after)


def _appearances(title: str, items: Sequence[ItemAppearance]) -> Section:
    columns = (
        _ITEM,
        Column("kind", code=True),
        Column("outcome", code=True),
        Column("cases", right=True),
        Column("gaps", right=True),
    )
    return Section(title, columns, Rows(items, _appearance_row))


def _appearance_row(item: ItemAppearance) -> Row:
    return item.id, item.kind, item.outcome, count_text(item.cases), count_text(item.gaps)
