"""Tables of reports, with columns that may be cut, written for a terminal or as GitHub markdown."""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Generic, Literal, TypeVar, overload

from quantizer.reporting.figures import NOTHING, counted, printable, shortened

T = TypeVar("T")
Row = tuple[str, ...]

MAX_BYTES = 1_000_000
"""The size limit of markdown, below what GitHub accepts as a job summary (1 MiB)."""

_NARROWEST = 8
_READABLE = 24
"""The number of characters that a name keeps even if the row then does not fit."""
_GAP = 2
_LONGEST = 300
"""The largest number of characters of a cell in markdown."""


@dataclass(frozen=True)
class Column:
    """One column; in a narrow terminal a long text is cut at its end, a long name in its middle."""

    name: str
    right: bool = False
    cut: Literal["never", "end", "middle"] = "never"
    code: bool = False
    """Whether markdown shows the cells as code: names, and text from outside."""


class Rows(Sequence[Row], Generic[T]):
    """The rows of *items*, written on demand, because a table of many thousands shows only a few of them."""

    def __init__(self, items: Sequence[T], write: Callable[[T], Row]) -> None:
        self._items = items
        self._write = write

    def __len__(self) -> int:
        return len(self._items)

    @overload
    def __getitem__(self, at: int) -> Row: ...
    @overload
    def __getitem__(self, at: slice) -> tuple[Row, ...]: ...
    def __getitem__(self, at: int | slice) -> Row | tuple[Row, ...]:
        if isinstance(at, slice):
            return tuple(map(self._write, self._items[at]))
        return self._write(self._items[at])


@dataclass(frozen=True)
class Section:
    """A titled table."""

    title: str
    columns: tuple[Column, ...]
    rows: Sequence[Row]
    note: str = ""
    """One sentence on how to read it."""


def text_table(section: Section, *, limit: int, width: int, path: str) -> list[str]:
    """Return the first *limit* rows and the number of other rows.

    Names are cut so that lines fit *width* if possible.
    """
    shown = [tuple(printable(cell) for cell in row) for row in section.rows[:limit]]
    columns = section.columns
    # empty columns are left out only if there is no room, so that tables usually have the same columns
    if _natural(columns, shown) > width:
        columns, shown = _filled(columns, shown)
    lines = _plain(columns, _fitted(columns, shown, width)) if shown else []
    left = len(section.rows) - len(shown)
    if left:
        lines.append(f"and {left:,} more" + (f": {path}" if path else ""))
    return lines


def markdown_table(section: Section) -> list[str]:
    """Return the table as GitHub markdown: two lines of head, then one per row."""
    columns = section.columns
    rows = [
        [_markdown_cell(cell, column).strip() for cell, column in zip(row, columns, strict=True)]
        for row in section.rows
    ]
    head = [column.name for column in columns]
    widths = [max([len(name) + _GAP, *map(len, cells)]) for name, *cells in zip(head, *rows, strict=True)]
    line = "| " + " | ".join(_padding(columns, widths)) + " |"
    rule = "|".join(
        "-" * (width + 1) + ":" if column.right else ":" + "-" * (width + 1)
        for column, width in zip(columns, widths, strict=True)
    )
    return [line.format(*head), f"|{rule}|", *(line.format(*row) for row in rows)]


def _padding(columns: Sequence[Column], widths: Sequence[int]) -> Iterator[str]:
    """Yield the format that pads the cells of each column."""
    for column, width in zip(columns, widths, strict=True):
        yield f"{{:{'>' if column.right else '<'}{width}}}"


def code(text: str) -> str:
    """Return *text* as a markdown code span. Nothing in *text* can end the span, and no `|` can split it."""
    text = shortened(printable(text), _LONGEST)
    if not text:
        return ""
    # a span ends at as many backticks as began it: one more than the longest run inside
    fence = "`" * (1 + max(map(len, re.findall("`+", text)))) if "`" in text else "`"
    # markdown strips one space at each end, so that an inner backtick does not touch the fence
    space = " " if text[0] in "` " or text[-1] in "` " else ""
    return f"{fence}{space}{text}{space}{fence}".replace("|", "\\|")


def _markdown_cell(cell: str, column: Column) -> str:
    return code(cell) if column.code else shortened(printable(cell), _LONGEST)


def _plain(columns: Sequence[Column], rows: Sequence[tuple[str, ...]]) -> list[str]:
    """Lay out the header, a rule and the rows."""
    head = tuple(column.name for column in columns)
    widths = [max(map(len, cells)) for cells in zip(head, *rows, strict=True)]
    line = (" " * _GAP).join(_padding(columns, widths))
    rule = ["-" * width for width in widths]
    return [line.format(*(cell.strip() for cell in row)).rstrip() for row in (head, rule, *rows)]


def _natural(columns: Sequence[Column], rows: Sequence[tuple[str, ...]]) -> int:
    """Return the full width of the table."""
    return sum(max(len(c.name), *(len(row[i]) for row in rows), 0) + _GAP for i, c in enumerate(columns)) - _GAP


def _filled(
    columns: Sequence[Column], rows: Sequence[tuple[str, ...]]
) -> tuple[tuple[Column, ...], list[tuple[str, ...]]]:
    """Leave out the columns that are empty in every row."""
    kept = [i for i in range(len(columns)) if any(row[i] != NOTHING for row in rows)]
    return tuple(columns[i] for i in kept), [tuple(row[i] for i in kept) for row in rows]


def _fitted(columns: Sequence[Column], rows: Sequence[tuple[str, ...]], width: int) -> list[tuple[str, ...]]:
    """Cut the widest names and texts, a character at a time, until the row is no wider than *width*.

    If the other columns leave no room, names are not cut further, and the row wraps.
    """
    widths = [max(len(column.name), *(len(row[i]) for row in rows)) for i, column in enumerate(columns)]
    widths = [size if column.cut == "never" else min(size, width) for column, size in zip(columns, widths, strict=True)]
    # the width with everything cut to the least; if even that is too wide, names stay readable and the row wraps
    least = sum(size if c.cut == "never" else min(size, _NARROWEST) for c, size in zip(columns, widths, strict=True))
    narrowest = _NARROWEST if least + _GAP * (len(widths) - 1) <= width else _READABLE
    while sum(widths) + _GAP * (len(widths) - 1) > width:
        room = [i for i, column in enumerate(columns) if column.cut != "never" and widths[i] > narrowest]
        if not room:
            break
        # always from the widest, so that all long names lose about equally
        widths[max(room, key=lambda i: widths[i])] -= 1
    return [
        tuple(shortened(cell, widths[i], middle=columns[i].cut == "middle") for i, cell in enumerate(row))
        for row in rows
    ]


def capped(headline: Sequence[str], sections: Sequence[Section], max_bytes: int) -> str:
    """Return headline and tables as markdown of at most *max_bytes*; it says which of the longest tables were cut."""
    tables = [section for section in sections if section.rows]
    parts = [_part(section, rows) for section, rows in zip(tables, _fitting(tables, max_bytes), strict=True)]
    total = _bytes(headline) + sum(_bytes(part.head) + _bytes(part.rows) for part in parts)
    note: list[str] = []
    if total > max_bytes or any(part.left_out for part in parts):
        # room for a note about every table, before it is known which ones are cut
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
    """The end of a table: rows that cannot fit and are not laid out."""


def _fitting(sections: Sequence[Section], max_bytes: int) -> list[Sequence[Row]]:
    """Return the first rows of each table, at least as many as fit when the longest table is cut first.

    Sizes are those of rows without padding, which only makes them larger. No table is written beyond what can fit.
    """
    measured = [_Measured(section.rows) for section in sections]
    room, cut = max_bytes, measured
    level = room
    while cut:
        # tables below an equal share leave their room to the others, until no table is below it
        level = room // len(cut)
        whole = [one for one in cut if one.within(level)]
        if not whole:
            break
        room -= sum(one.size for one in whole)
        cut = [one for one in cut if one not in whole]
    return [one.fitting(level) for one in measured]


class _Measured:
    """The first rows of a table and their total size, computed only as far as requested."""

    def __init__(self, rows: Iterable[Row]) -> None:
        self.size = 0
        self._rest = iter(rows)
        self._rows: list[Row] = []
        self._sizes: list[int] = []

    def within(self, level: int) -> bool:
        """Return whether all rows together are no larger than *level*."""
        while self.size <= level:
            row = next(self._rest, None)
            if row is None:
                return True
            # a byte per character and ` | ` between cells: never more than the written row
            self.size += sum(min(len(cell), _LONGEST) for cell in row) + 3 * len(row)
            self._rows.append(row)
            self._sizes.append(self.size)
        return False

    def fitting(self, level: int) -> list[Row]:
        """Return the rows whose total size is at most *level*; all rows if the table fits completely."""
        return self._rows[: bisect_right(self._sizes, level)]


def _part(section: Section, rows: Sequence[Row]) -> _Part:
    lines = markdown_table(replace(section, rows=rows))
    note = [section.note, ""] if section.note else []
    head = ["", f"### {section.title} ({len(section.rows):,})", "", *note, *lines[:2]]
    return _Part(section.title, head, lines[2:], len(section.rows) - len(rows))


def _cut(parts: Sequence[_Part], over: int) -> list[tuple[str, int]] | None:
    """Drop rows from the end of the longest table until *over* bytes are saved; None if that is impossible."""
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
        # a table without rows loses its head, too
        over -= gone if part.rows else gone + _bytes(part.head)
    return [(part.title, count) for part, count in zip(parts, dropped, strict=True) if count]


def _cut_note(cuts: Sequence[tuple[str, int]], max_bytes: int) -> list[str]:
    named = ", ".join(f"{counted(count, 'row')} of {title}" for title, count in cuts)
    return ["", f"Cut to {max_bytes:,} bytes. Left out: {named}."]


def _bytes(lines: Sequence[str]) -> int:
    return sum(len(line.encode()) + 1 for line in lines)
