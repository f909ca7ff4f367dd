"""Known failures of a plugin or an engine: each has a reason, an owner, an expiry and a stored case that must fail."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from pydantic import Field

from quantizer.core.defect_statements import check_statement
from quantizer.core.defects import CASE_NAMES, Defect, check_defects, is_day
from quantizer.core.errors import SpecError, UnsupportedError
from quantizer.core.expressions import parse
from quantizer.core.files import is_file, resolved
from quantizer.core.library import Library, read_file
from quantizer.core.model import Model
from quantizer.core.model_errors import Finding
from quantizer.core.spec import Spec
from quantizer.core.wording import suggestion


class Xfail(Defect):
    """A known failure that will be fixed. It is treated as a defect of its platforms until it expires."""

    platforms: list[str] = Field(min_length=1)
    """The platforms on which it shows. Its case must fail on each."""
    owner: str = Field(min_length=1)
    """The person or team that repairs it."""
    expires: str
    """The expiry date, YYYY-MM-DD, which is compared with the date of the commit."""
    case: str
    """The path, from the file's folder, of a stored case that must fail."""


class Xfails(Model):
    """The file of `--op-xfails`."""

    xfails: list[Xfail]


def with_xfails(library: Library, file: Path) -> Library:
    """Return *library* with the entries of *file* added to the defects of their platforms.

    SpecError lists entries with unknown names, and entries that expired before the checked-out commit.
    UnsupportedError if *file* is not in a git repository; the last commit provides the date.
    """
    today = commit_date(resolved(file).parent)
    read, _ = read_file(file, Xfails, lambda found: [*_problems(found, library, file.parent, today)])
    platforms = dict(library.platforms)
    for entry in read.xfails:
        placed = entry.model_copy(update={"case": str(resolved(file.parent / entry.case))})
        for name in entry.platforms:
            defects = [*platforms[name].defects, placed]
            platforms[name] = platforms[name].model_copy(update={"defects": defects})
    return replace(library, platforms=platforms)


def read_xfails(file: Path) -> Xfails:
    """Read the entries of *file* without checks; `with_xfails` judges them."""
    return read_file(file, Xfails, lambda _: [])[0]


def commit_date(folder: Path) -> str:
    """Return the day, YYYY-MM-DD, of the commit that is checked out at *folder*.

    Expiry is decided by it and not by today's date, so that all runs of a commit agree.
    """
    command = ["git", "-C", str(folder), "log", "-1", "--format=%cs"]
    try:
        answer = subprocess.run(command, capture_output=True, text=True, check=False).stdout.strip()  # noqa: S603
    except OSError:
        answer = ""
    if not is_day(answer):
        raise UnsupportedError(f"--op-xfails: {folder} has no commit, whose date would decide the expiry. Use git.")
    return answer


def _problems(found: Xfails, library: Library, folder: Path, today: str) -> Iterator[Finding]:
    taken = [defect.id for platform in library.platforms.values() for defect in platform.defects]
    yield from check_defects(found.xfails, "xfails", taken)
    for index, entry in enumerate(found.xfails):
        yield from _unknown(index, "ops", entry.ops or (), [*library.specs])
        yield from _unknown(index, "platforms", entry.platforms, [*library.platforms])
        yield from check_statement(entry, library.specs, ("xfails", index))
        for op in entry.ops or ():
            yield from _unknown_in_predicate(index, entry, library.specs.get(op))
        place = ("xfails", index, "expires")
        if not is_day(entry.expires):
            yield Finding(place, f"must be a day, got {entry.expires!r}. Write it as 2027-01-31.")
        # both are YYYY-MM-DD, whose order as texts is that of days
        elif entry.expires < today:
            yield Finding(
                place, f"{entry.id!r} expired on {entry.expires}, {entry.owner} owns it. Mend it or extend it."
            )
        if entry.since and entry.since > entry.expires:
            yield Finding(("xfails", index, "since"), f"{entry.since} lies after the expiry, {entry.expires}.")
        if not is_file(folder / entry.case):
            yield Finding(
                ("xfails", index, "case"), f"no such file: {entry.case}. Keep the replay file of the failure."
            )


def _unknown(index: int, key: str, names: Sequence[str], known: Sequence[str]) -> Iterator[Finding]:
    for place, name in enumerate(names):
        if name not in known:
            yield Finding(("xfails", index, key, place), f"{name!r}: no such name.{suggestion(name, known, 'Known')}")


def _unknown_in_predicate(index: int, entry: Xfail, spec: Spec | None) -> Iterator[Finding]:
    try:
        names = parse(entry.predicate).names
    except SpecError:
        return
    known = [] if spec is None else [*spec.dims, *spec.attrs, *CASE_NAMES]
    for name in sorted(names.difference(known)) if known else ():
        yield Finding(("xfails", index, "predicate"), f"name {name!r} is unknown.{suggestion(name, known, 'Known')}")
