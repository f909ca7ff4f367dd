"""Declared exceptions (known defects of platforms, entries of `--op-xfails`) by age, expired ones first."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import date

from quantizer.core.facts import ExceptionFacts, Facts
from quantizer.core.record import Record
from quantizer.reporting.figures import NOTHING
from quantizer.reporting.tables import Column, Section
from quantizer.reporting.tally import defect_reasons

_KIND = {"defect": "platform defect", "xfail": "known failure"}


@dataclass(frozen=True)
class Met:
    """A declared exception, and where the run met it."""

    declared: ExceptionFacts
    platform: str
    items: tuple[str, ...]
    age: int | None
    """Days since it was declared; None if its date, or the date of the run, is unknown."""
    expired: bool


def exceptions(records: Iterable[Record], facts: Facts | None = None, as_of: str = "") -> list[Met]:
    """Return the exceptions that the run met and the xfails entries that it did not; expired first, then by age.

    *as_of*: the reference day for ages, YYYY-MM-DD; by default the day of the run's commit.
    """
    day = as_of or (facts.tree.date if facts and facts.tree else "")
    declared = {(name, entry.id): entry for entry in (facts.exceptions if facts else ()) for name in entry.platforms}
    items = _met(records)
    wanted = [key for key, entry in declared.items() if key in items or entry.kind == "xfail"]
    unknown = {key: _undeclared(key, reason) for key, (reason, _) in items.items() if key not in declared}
    found = [
        Met(
            entry := (declared.get(key) or unknown[key]),
            key[0],
            tuple(sorted(items[key][1])) if key in items else (),
            _days(entry.since, day),
            # days are texts YYYY-MM-DD, whose order is that of dates
            bool(day and entry.expires and entry.expires < day),
        )
        for key in (*wanted, *unknown)
    ]
    return sorted(
        found, key=lambda met: (not met.expired, -(-1 if met.age is None else met.age), met.declared.id, met.platform)
    )


def excused_whole(records: Iterable[Record], facts: Facts) -> dict[str, list[str]]:
    """Return entry of `--op-xfails` -> items in which it leaves a check without a passing case."""
    known = {(name, entry.id) for entry in facts.exceptions if entry.kind == "xfail" for name in entry.platforms}
    found: dict[str, list[str]] = {}
    for record in records:
        for check in record.checks.values():
            if check.defects and not check.passed + check.mistrusted:
                names = {text.partition(": ")[0] for text in defect_reasons(check)}
                for name in sorted(n for n in names if (record.platform, n) in known):
                    if record.id not in (items := found.setdefault(name, [])):
                        items.append(record.id)
    return found


def _met(records: Iterable[Record]) -> dict[tuple[str, str], tuple[str, set[str]]]:
    """Return (platform, id) -> (reason, items): verdicts name the exception that excused them, `id: reason`."""
    found: dict[tuple[str, str], tuple[str, set[str]]] = {}
    for record in records:
        for check in record.checks.values():
            for text in sorted(defect_reasons(check)):
                name, _, reason = text.partition(": ")
                found.setdefault((record.platform, name), (reason, set()))[1].add(record.id)
    return found


def _undeclared(key: tuple[str, str], reason: str) -> ExceptionFacts:
    return ExceptionFacts(id=key[1], kind="defect", platforms=[key[0]], reason=reason)


def _days(since: str, day: str) -> int | None:
    if not (since and day):
        return None
    return (date.fromisoformat(day) - date.fromisoformat(since)).days


def exceptions_table(found: Iterable[Met], as_of: str = "") -> Section:
    """Return a table of declared exceptions with their age in days at *as_of*, a date such as 2026-11-23."""
    columns = (
        Column("exception", code=True),
        Column("kind"),
        Column("platform", code=True),
        Column("since"),
        Column("age in days", right=True),
        Column("expires"),
        Column("owner", code=True),
        Column("items", right=True),
        Column("for example", code=True),
        Column("reason", code=True),
    )
    rows = tuple(
        (
            met.declared.id,
            _KIND[met.declared.kind],
            met.platform,
            met.declared.since or NOTHING,
            NOTHING if met.age is None else f"{met.age:,}",
            _expiry(met),
            met.declared.owner or NOTHING,
            f"{len(met.items):,}" if met.items else "not met",
            next(iter(met.items), NOTHING),
            met.declared.reason,
        )
        for met in found
    )
    told = f" Ages are told by {as_of}." if as_of else ""
    note = f"Declared failures: expired ones first, then the oldest.{told}"
    return Section("Exceptions by age", columns, rows, note=note)


def _expiry(met: Met) -> str:
    if not met.declared.expires:
        return NOTHING
    return f"{met.declared.expires}, expired" if met.expired else met.declared.expires
