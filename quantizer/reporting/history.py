"""Stores the history of runs in one SQLite file, a row for each operator of a run. Many jobs may append at once."""

from __future__ import annotations

import sqlite3
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import astuple, dataclass, fields
from pathlib import Path
from typing import Any

from quantizer.core.errors import CaseError
from quantizer.core.files import exists, is_file
from quantizer.core.reading import Readable, one_line, shown_value
from quantizer.core.record import Record
from quantizer.reporting.gate import GRADED
from quantizer.reporting.tally import CASES, is_failing, item_gaps, worst_ratio

APPLICATION = 0x716E7472
"""The application id that marks an SQLite file as a history."""
VERSION = 1
WAIT = 120.0
"""The number of seconds that a job waits for other writers."""

HISTORY = Readable("a history", 1 << 40, CaseError, "It was left as it is; name another.")
"""No size limit, because SQLite reads the file page by page."""
_SQLITE = b"SQLite format 3\x00"


@dataclass(frozen=True)
class Figures:
    """The figures of a run for one operator; None for figures that it did not measure."""

    ratio: float
    """The worst ratio of the graded checks, accuracy and float; it may be infinite."""
    sqnr_db: float | None
    """Worst signal to quantization noise, in dB."""
    seconds: float | None
    cases: int
    failed: int
    """The number of items that failed."""
    gaps: int
    killed: int | None
    """The number of faults found, out of `planted` faults with an effect."""
    planted: int | None


COLUMNS = tuple(field.name for field in fields(Figures))

_SCHEMA = f"""
CREATE TABLE runs (position INTEGER PRIMARY KEY AUTOINCREMENT, name TEXT NOT NULL UNIQUE);
CREATE TABLE figures (
  position INTEGER NOT NULL REFERENCES runs, op TEXT NOT NULL,
  ratio REAL NOT NULL, sqnr_db REAL, seconds REAL, cases INTEGER NOT NULL, failed INTEGER NOT NULL,
  gaps INTEGER NOT NULL, killed INTEGER, planted INTEGER, PRIMARY KEY (op, position)) WITHOUT ROWID;
PRAGMA application_id = {APPLICATION};
PRAGMA user_version = {VERSION};
"""

_MADE = {
    ("table", words[2], statement.strip())
    for statement in _SCHEMA.split(";")
    if (words := statement.split()) and words[:2] == ["CREATE", "TABLE"]
} | {("table", "sqlite_sequence", "CREATE TABLE sqlite_sequence(name,seq)")}
"""The tables of a history in SQLite."""


def figures_of(
    records: Iterable[Record], seconds: Mapping[str, float], kills: Mapping[str, tuple[int, int]]
) -> dict[str, Figures]:
    """Return operator -> figures of one run; *seconds* by item, *kills* by operator."""
    by_op: dict[str, list[Record]] = defaultdict(list)
    for record in records:
        by_op[record.op].append(record)
    return {op: _figures(by_op[op], seconds, kills.get(op)) for op in sorted(by_op)}


def _figures(records: Sequence[Record], seconds: Mapping[str, float], kills: tuple[int, int] | None) -> Figures:
    graded = [worst_ratio(check) for record in records for name, check in record.checks.items() if name in GRADED]
    sqnr = [record.metrics["sqnr_db"] for record in records if "sqnr_db" in record.metrics]
    timed = [seconds[record.id] for record in records if record.id in seconds]
    return Figures(
        ratio=max(graded, default=0.0),
        sqnr_db=min(sqnr, default=None),
        seconds=sum(timed) if timed else None,
        cases=sum(record.cases for record in records if record.kind == CASES),
        failed=sum(map(is_failing, records)),
        gaps=sum(len(item_gaps(record)) for record in records),
        killed=kills[0] if kills else None,
        planted=kills[1] if kills else None,
    )


def append(file: Path, name: str, figures: Mapping[str, Figures]) -> None:
    """Append one run or shard, completely or not at all. A missing file is created.

    CaseError if the file is damaged or not a history, or if the run *name* already has one of the operators.
    """
    with _writing(file) as database:
        _add(database, name, figures, file)


def merge(file: Path, others: Sequence[Path]) -> None:
    """Append the runs of *others*, in order, all or none. Shards of one name become one run."""
    # all are read before anything is written, so that a damaged file changes nothing
    read = [(other, runs(other)) for other in others]
    with _writing(file) as database:
        for other, names in read:
            for name in names:
                _add(database, name, of_run(other, name), file)


def prune(file: Path, keep: int) -> int:
    """Keep the newest *keep* runs; return the number of deleted runs."""
    _exists(file)
    with _writing(file) as database:
        # SQLite needs a limit before an offset; -1 is none
        old = "SELECT position FROM runs ORDER BY position DESC LIMIT -1 OFFSET ?"
        database.execute(f"DELETE FROM figures WHERE position IN ({old})", (keep,))  # noqa: S608 - a constant
        return database.execute(f"DELETE FROM runs WHERE position IN ({old})", (keep,)).rowcount  # noqa: S608


def runs(file: Path) -> list[str]:
    """Return the names of all runs, the oldest first."""
    with _reading(file) as database:
        return [_text(name, file) for (name,) in database.execute("SELECT name FROM runs ORDER BY position")]


def of_run(file: Path, name: str) -> dict[str, Figures]:
    """Return operator -> figures of one run."""
    columns = ", ".join(COLUMNS)  # names of this module
    query = f"SELECT op, {columns} FROM figures JOIN runs USING (position) WHERE name = ? ORDER BY op"  # noqa: S608
    with _reading(file) as database:
        return {_text(op, file): _read(row, file) for op, *row in database.execute(query, (name,))}


def trend(file: Path, *, op: str | None = None, last: int = 1_000) -> list[tuple[str, str, Figures]]:
    """Return (operator, run, figures) of the newest *last* runs: by operator, the oldest first."""
    query = (
        # the columns are names of this module only
        f"SELECT op, name, {', '.join(COLUMNS)} FROM figures JOIN runs USING (position)"  # noqa: S608
        " WHERE position IN (SELECT position FROM runs ORDER BY position DESC LIMIT ?) AND (?2 IS NULL OR op = ?2)"
        " ORDER BY op, position"
    )
    with _reading(file) as database:
        rows = database.execute(query, (last, op))
        return [(_text(of, file), _text(name, file), _read(row, file)) for of, name, *row in rows]


def ratios(file: Path, last: int = 100) -> dict[str, list[float | None]]:
    """Return operator -> worst ratio in each of the newest *last* runs, the oldest first; None if it did not run."""
    newest = "SELECT position FROM runs ORDER BY position DESC LIMIT ?"
    query = f"SELECT op, position, ratio FROM figures WHERE position IN ({newest})"  # noqa: S608 - a constant
    with _reading(file) as database:
        place = {row: number for number, (row,) in enumerate(reversed(database.execute(newest, (last,)).fetchall()))}
        found: dict[str, list[float | None]] = defaultdict(lambda: [None] * len(place))
        for op, position, ratio in database.execute(query, (last,)):
            found[_text(op, file)][place[position]] = _number(ratio, "ratio", file)
    return dict(found)


def _add(database: sqlite3.Connection, name: str, figures: Mapping[str, Figures], file: Path) -> None:
    # shards of one run share its name and have different operators
    database.execute("INSERT OR IGNORE INTO runs (name) VALUES (?)", (name,))
    ((position,),) = database.execute("SELECT position FROM runs WHERE name = ?", (name,))
    known = {op for (op,) in database.execute("SELECT op FROM figures WHERE position = ?", (position,))}
    if twice := sorted(known & figures.keys()):
        raise CaseError(f"{file}: run {name!r} holds {twice[0]!r} already. Give the run another name.")
    marks = ", ".join("?" * (len(COLUMNS) + 2))
    rows = ((position, op, *astuple(figures[op])) for op in sorted(figures))
    database.executemany(f"INSERT INTO figures VALUES ({marks})", rows)  # noqa: S608 - question marks


def _read(row: Sequence[object], file: Path) -> Figures:
    """Return the figures of a row, checked: SQLite permits texts and blobs in columns of numbers."""
    values: list[Any] = []
    for name, value in zip(COLUMNS, row, strict=True):
        may_lack = name in ("sqnr_db", "seconds", "killed", "planted")
        values.append(None if value is None and may_lack else _number(value, name, file))
    return Figures(*values)


def _number(value: object, name: str, file: Path) -> float:
    whole = name in ("cases", "failed", "gaps", "killed", "planted")
    if not isinstance(value, int if whole else int | float):
        text = f"{name}: {shown_value(value)} where a number must be"
        raise CaseError(f"{file}: damaged ({text}). It was left as it is; restore it, or name another.")
    return value


def _text(value: object, file: Path) -> str:
    if not isinstance(value, str):
        text = f"{shown_value(value)} where a name must be"
        raise CaseError(f"{file}: damaged ({text}). It was left as it is; restore it, or name another.")
    return value


def _exists(file: Path) -> None:
    if not is_file(file):
        raise CaseError(f"{file}: no such file. `quantizer report history add` makes one.")


@contextmanager
def _reading(file: Path) -> Iterator[sqlite3.Connection]:
    _exists(file)
    with _opened(file) as database:
        if not _checked(database, file):
            raise CaseError(f"{file}: holds no runs. `quantizer report history add` adds one.")
        yield database


@contextmanager
def _writing(file: Path) -> Iterator[sqlite3.Connection]:
    with _opened(file) as database:
        # takes the write lock at once, so that another writer waits here and not after it has read
        database.execute("BEGIN IMMEDIATE")
        try:
            if not _checked(database, file):
                for statement in filter(str.strip, _SCHEMA.split(";")):
                    database.execute(statement)
            yield database
        except BaseException:
            database.execute("ROLLBACK")
            raise
        database.execute("COMMIT")


@contextmanager
def _opened(file: Path) -> Iterator[sqlite3.Connection]:
    try:
        if exists(file):
            with HISTORY.opened(file, str(file)) as stream:
                if (head := stream.read(len(_SQLITE))) and head != _SQLITE:
                    raise CaseError(f"{file}: is not a SQLite file. It was left as it is; name another.")
        # isolation_level=None: transactions begin and end below, never by Python's own rules
        with closing(sqlite3.connect(file, timeout=WAIT, isolation_level=None)) as database:
            yield database
    except (sqlite3.Error, OSError, UnicodeError, OverflowError) as err:
        why = "holds text that is not UTF-8" if isinstance(err, UnicodeError) else one_line(err)
        raise CaseError(f"{file}: {why}. It was left as it is; restore it, or name another.") from None


def _checked(database: sqlite3.Connection, file: Path) -> bool:
    """Return True for a history and False for an empty file; CaseError if it is damaged or of another program."""
    (application,) = database.execute("PRAGMA application_id").fetchone()
    (version,) = database.execute("PRAGMA user_version").fetchone()
    (tables,) = database.execute("SELECT count(*) FROM sqlite_master").fetchone()
    if not (application or version or tables):
        return False
    if application != APPLICATION:
        raise CaseError(f"{file}: is a SQLite file of something else. It was left as it is; name another.")
    if version != VERSION:
        raise CaseError(f"{file}: version {version}, must be {VERSION}. Use the quantizer that wrote it.")
    made = {tuple(row) for row in database.execute("SELECT type, name, sql FROM sqlite_master WHERE sql IS NOT NULL")}
    if made == {(kind, name, sql.replace("gaps", "holes")) for kind, name, sql in _MADE}:
        text = "has the column `holes`, now `gaps`: a build before the first release wrote it"
        raise CaseError(f"{file}: {text}. It was left as it is; name a new file, and add runs to it.")
    if made != _MADE:  # reading a view, or a trigger on a table, may give any rows or never end
        raise CaseError(f"{file}: its tables are not those of a history. It was left as it is; name another.")
    (said,) = database.execute("PRAGMA quick_check(1)").fetchone()
    if said != "ok":
        raise CaseError(f"{file}: damaged ({said.splitlines()[0]}). It was left as it is; restore it, or name another.")
    return True
