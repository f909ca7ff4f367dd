"""A table of a report: columns that know how to be cut, written for a terminal or as GitHub markdown."""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import accumulate
from typing import Literal

from tabulate import tabulate

from quantizer.reporting.figures import NOTHING, counted, printable, shortened

_NARROWEST = 8
_GAP = 2
_LONGEST = 300
"""Characters of a cell in markdown."""


@dataclass(frozen=True)
class Column:
    """One column; in a narrow terminal a long text gives way at its end, a long name in its middle."""

    name: str
    right: bool = False
    cut: Literal["never", "end", "middle"] = "never"
    code: bool = False
    """Markdown shows the cells as code: names, and text that others wrote."""


@dataclass(frozen=True)
class Section:
    """A titled table."""

    title: str
    columns: tuple[Column, ...]
    rows: tuple[tuple[str, ...], ...]
    note: str = ""
    """One sentence on how to read it."""


def text_table(section: Section, *, limit: int, width: int, path: str) -> list[str]:
    """Return the first *limit* rows, names cut so that lines keep to *width* where they can, and how many are left."""
    shown = [tuple(printable(cell) for cell in row) for row in section.rows[:limit]]
    columns = section.columns
    if _natural(columns, shown) > width:
        columns, shown = _filled(columns, shown)
    lines = _plain(columns, _fitted(columns, shown, width)) if shown else []
    left = len(section.rows) - len(shown)
    if left:
        lines.append(f"and {left:,} more" + (f": {path}" if path else ""))
    return lines


def markdown_table(section: Section) -> list[str]:
    """Return the table as GitHub markdown: two lines of head, then one per row."""
    table = tabulate(
        [
            [_markdown_cell(cell, column) for cell, column in zip(row, section.columns, strict=True)]
            for row in section.rows
        ],
        headers=[column.name for column in section.columns],
        tablefmt="pipe",
        disable_numparse=True,
        colalign=["right" if column.right else "left" for column in section.columns],
    )
    return table.split("\n")


def code(text: str) -> str:
    """Return *text* as a markdown code span that nothing in it can end, and no `|` can split."""
    text = shortened(printable(text), _LONGEST)
    if not text:
        return ""
    fence = "`" * (1 + max((len(run) for run in re.findall("`+", text)), default=0))
    space = " " if text[0] in "` " or text[-1] in "` " else ""
    return f"{fence}{space}{text}{space}{fence}".replace("|", "\\|")


def _markdown_cell(cell: str, column: Column) -> str:
    return code(cell) if column.code else shortened(printable(cell), _LONGEST)


def _plain(columns: Sequence[Column], rows: Sequence[tuple[str, ...]]) -> list[str]:
    """Lay out names, a rule and rows; as rows of their own, since tabulate pads what it knows to be a head."""
    head = tuple(column.name for column in columns)
    rule = tuple("-" * max(map(len, cells)) for cells in zip(head, *rows, strict=True))
    align = ["right" if column.right else "left" for column in columns]
    table = tabulate([head, rule, *rows], tablefmt="plain", disable_numparse=True, colalign=align)
    return [line.rstrip() for line in table.split("\n")]


def _natural(columns: Sequence[Column], rows: Sequence[tuple[str, ...]]) -> int:
    """Return how wide the table is when nothing is cut."""
    return sum(max(len(c.name), *(len(row[i]) for row in rows), 0) + _GAP for i, c in enumerate(columns)) - _GAP


def _filled(
    columns: Sequence[Column], rows: Sequence[tuple[str, ...]]
) -> tuple[tuple[Column, ...], list[tuple[str, ...]]]:
    """Leave out the columns that have nothing to say in any row."""
    kept = [i for i in range(len(columns)) if any(row[i] != NOTHING for row in rows)]
    return tuple(columns[i] for i in kept), [tuple(row[i] for i in kept) for row in rows]


def _fitted(columns: Sequence[Column], rows: Sequence[tuple[str, ...]], width: int) -> list[tuple[str, ...]]:
    """Cut the widest names and texts, a character at a time, until the row is no wider than *width*."""
    widths = [max(len(column.name), *(len(row[i]) for row in rows)) for i, column in enumerate(columns)]
    widths = [size if column.cut == "never" else min(size, width) for column, size in zip(columns, widths, strict=True)]
    while sum(widths) + _GAP * (len(widths) - 1) > width:
        room = [i for i, column in enumerate(columns) if column.cut != "never" and widths[i] > _NARROWEST]
        if not room:
            break
        widths[max(room, key=lambda i: widths[i])] -= 1
    return [
        tuple(shortened(cell, widths[i], middle=columns[i].cut == "middle") for i, cell in enumerate(row))
        for row in rows
    ]


def capped(headline: Sequence[str], sections: Sequence[Section], max_bytes: int) -> str:
    """Return headline and tables as markdown of at most *max_bytes*; it says which of the longest tables were cut."""
    tables = [section for section in sections if section.rows]
    parts = [_part(section, kept) for section, kept in zip(tables, _fitting(tables, max_bytes), strict=True)]
    total = _bytes(headline) + sum(_bytes(part.head) + _bytes(part.rows) for part in parts)
    note: list[str] = []
    if total > max_bytes or any(part.left_out for part in parts):
        total += _bytes(_cut_note([(part.title, len(part.rows) + part.left_out) for part in parts], max_bytes))
        cuts = _cut(parts, total - max_bytes)
        if cuts is None:
            raise ValueError(f"max_bytes: {max_bytes} is not room enough for the first lines. Allow 2000 or more.")
        note = _cut_note(cuts, max_bytes)
    body = [line for part in parts if part.rows for line in (*part.head, *part.rows)]
    return "".join(line + "\n" for line in (*headline, *note, *body))


@dataclass(frozen=True)
class _Part:
    title: str
    head: list[str]
    rows: list[str]
    left_out: int
    """Rows that cannot fit beside those before them; they are not even laid out."""


def _fitting(sections: Sequence[Section], max_bytes: int) -> list[int]:
    """Return how many rows of each table to lay out: no fewer than fit when the longest table is cut first.

    Sizes are those of bare rows, which laying out only makes larger.
    """
    sizes = [
        list(accumulate(sum(min(len(cell), _LONGEST) for cell in row) + 3 * len(row) for row in section.rows))
        for section in sections
    ]
    room, level = max_bytes, max_bytes
    for left, total in zip(range(len(sizes), 0, -1), sorted(size[-1] for size in sizes), strict=True):
        level = room // left
        if total > level:
            break
        room -= total
        level = max_bytes
    return [bisect_right(size, level) for size in sizes]


def _part(section: Section, kept: int) -> _Part:
    lines = markdown_table(replace(section, rows=section.rows[:kept]))
    note = [section.note, ""] if section.note else []
    head = ["", f"### {section.title} ({len(section.rows):,})", "", *note, *lines[:2]]
    return _Part(section.title, head, lines[2:], len(section.rows) - kept)


def _cut(parts: Sequence[_Part], over: int) -> list[tuple[str, int]] | None:
    """Drop last rows, of the longest table each time, until *over* bytes are gone; None where that is impossible."""
    size = [_bytes(part.rows) for part in parts]
    dropped = [part.left_out for part in parts]
    while over > 0:
        longest = max((i for i, part in enumerate(parts) if part.rows), key=lambda i: size[i], default=-1)
        if longest < 0:
            return None
        part = parts[longest]
        gone = _bytes([part.rows.pop()])
        size[longest] -= gone
        dropped[longest] += 1
        over -= gone if part.rows else gone + _bytes(part.head)
    return [(part.title, count) for part, count in zip(parts, dropped, strict=True) if count]


def _cut_note(cuts: Sequence[tuple[str, int]], max_bytes: int) -> list[str]:
    named = ", ".join(f"{counted(count, 'row')} of {title}" for title, count in cuts)
    return ["", f"Cut to {max_bytes:,} bytes. Left out: {named}."]


def _bytes(lines: Sequence[str]) -> int:
    return sum(len(line.encode()) + 1 for line in lines)
