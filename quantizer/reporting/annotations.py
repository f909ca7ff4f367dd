"""Failures as annotations of a CI system: workflow commands of GitHub, on the line of the spec that is at fault."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Sequence
from pathlib import PurePosixPath

from quantizer.core.facts import Facts
from quantizer.core.record import Record
from quantizer.core.wording import visible
from quantizer.reporting.figures import counted, printable, shortened
from quantizer.reporting.items import place, rerun
from quantizer.reporting.tally import check_order, failing_checks, is_failing

LIMIT = 10
"""The number of errors that GitHub shows for one step; it silently drops the rest."""

_NAMED = 12
_TITLE = 120
_LINE = re.compile(r"(?P<file>[^\s:][^:]*):(?P<line>\d+):(?P<column>\d+): (?P<text>.*)")


def annotate(
    records: Iterable[Record], facts: Facts | None = None, *, prefix: str = "", limit: int = LIMIT
) -> list[str]:
    """Return one command for each faulty line of a spec, the line with most items first.

    The last command says how many are left out.

    *prefix*: the folder of the run's root, from the root of the repository.
    """
    groups: dict[tuple[str, int, str], list[Record]] = defaultdict(list)
    for record in sorted(records, key=lambda record: record.id):
        if is_failing(record):
            groups[(*place(record, facts), _check(record))].append(record)
    order = sorted(groups, key=lambda key: (-len(groups[key]), key[0], key[1], check_order(key[2])))
    # the last annotation counts those that are left out
    shown = order if len(order) <= limit else order[: limit - 1]
    commands = [_of_group(key, groups[key], facts, prefix) for key in shown]
    if left := [record for key in order[len(shown) :] for record in groups[key]]:
        title = f"{counted(len(left), 'more failing item')} in {counted(len(order) - len(shown), 'more place')}"
        commands.append(error_command("\n".join(record.id for record in left[:100]), title=title))
    return commands


def _check(record: Record) -> str:
    return next((name for name, _ in failing_checks(record)), record.kind)


def _of_group(key: tuple[str, int, str], records: Sequence[Record], facts: Facts | None, prefix: str) -> str:
    path, line, check = key
    first = records[0]
    others = [record.id for record in records[1:]]
    names = ", ".join(others[:_NAMED]) + (f" and {len(others) - _NAMED} more" if len(others) > _NAMED else "")
    lines = [f"{first.id}: {first.failure or first.outcome}"]
    lines += [f"also {names}"] if others else []
    lines.append(f"rerun: {rerun(first, facts)}")
    on = f" on {counted(len(records), 'target')}" if len(records) > 1 else ""
    return error_command(
        "\n".join(map(printable, lines)),
        title=f"{first.op}: {check} fails{on}",
        file=_joined(prefix, path),
        line=line,
    )


def _joined(prefix: str, path: str) -> str:
    return str(PurePosixPath(prefix, path)) if prefix else path


def of_messages(text: str) -> list[str]:
    """Return a command for each error of *text*: `file:line:column: rule`; source lines under it are left out."""
    places = filter(None, map(_LINE.fullmatch, text.splitlines()))
    found = [
        error_command(
            place["text"],
            title="quantizer",
            file=place["file"],
            line=int(place["line"]),
            col=int(place["column"]),
        )
        for place in places
    ]
    return found or [error_command(text, title="quantizer")]


def error_command(message: str, *, title: str, **properties: str | int) -> str:
    """Return `::error file=...,line=...,title=...::message` as GitHub's runner reads it."""
    named = {**properties, "title": shortened(printable(title), _TITLE)}
    shown = ",".join(f"{name}={_property(str(value))}" for name, value in named.items())
    return visible(f"::error {shown}::{_data(message)}")


def _data(text: str) -> str:
    # % first, because the other escapes contain it
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _property(text: str) -> str:
    return _data(text).replace(":", "%3A").replace(",", "%2C")
