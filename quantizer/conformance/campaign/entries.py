"""The schema of a journal's lines: the results of a unit, and the smallest case of a failure."""

from __future__ import annotations

from typing import Annotated, Any

from msgspec import Meta, Struct, ValidationError, convert

from quantizer.conformance.campaign.plan import Count
from quantizer.core.case import Case
from quantizer.core.case_file import refuse_unreleased
from quantizer.core.errors import CaseError
from quantizer.core.reading import Readable, one_line

JOURNALED = Readable("an entry of a journal", 1 << 40, CaseError, "Name another folder.")
"""The reader of a journal's lines, one by one."""
BINS = 20
"""The number of bins of a histogram of ratios from 0 to 1. One more bin counts larger ratios."""


class Found(Struct, forbid_unknown_fields=True):
    """One failing case of a unit; *case* is empty if none could be built."""

    cause: str
    check: str
    finding: str
    case: str


class UnitEntry(Struct, forbid_unknown_fields=True):
    """The results of one unit's examples."""

    unit: Count
    target: str
    examples: Count
    elements: Count
    checks: dict[str, dict[str, Count]]
    histograms: dict[str, Annotated[list[Count], Meta(min_length=BINS + 1, max_length=BINS + 1)]]
    failures: list[Found]


class ShrunkEntry(Struct, forbid_unknown_fields=True):
    """The smallest case of the failures of one cause, found from the case of one unit."""

    shrunk: str
    of: Count
    case: str


def read_entry(line: bytes, where: str) -> dict[str, Any]:
    """Return the entry in *line*; CaseError with *where* if it is not valid."""
    raw = JOURNALED.parsed(JOURNALED.decoded(line, where), where)
    refuse_unreleased(raw, where)
    try:
        if isinstance(raw, dict) and "shrunk" in raw:
            cases = [convert(raw, ShrunkEntry).case]
        else:
            cases = [found.case for found in convert(raw, UnitEntry).failures if found.case]
    except (ValidationError, UnicodeEncodeError) as err:
        raise CaseError(f"{where}: not an entry of a journal: {one_line(err)}. Name another folder.") from None
    for case in cases:
        Case.from_json(case, where)
    return dict(raw)
