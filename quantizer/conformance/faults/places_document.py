"""docs/fault_places.md: the kill matrix by platform and arithmetic, as a document."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from quantizer.conformance.faults.document import table
from quantizer.conformance.faults.places import KILLED, STALE, SURVIVES, UNDECIDED, WITHOUT, Place

_INTRO = """# What the gate finds, by platform

Written by `quantizer faults --places -o docs/fault_places.md`; do not edit. A *place* is a fault in an operator on \
one platform, in the
cases that have one arithmetic there: what is found on one platform says nothing about another. A fault is planted by \
the kind of
number that it changes (multiplier, scale, table, slope, limit), whatever the platform calls it. A place without \
effect has its reason;
a place that is *not settled* changes nothing in the gate's cases, and nothing says why. [faults.md](faults.md) \
counts the same faults by
operator.
"""
_COUNTED = (
    (KILLED, "found"),
    (SURVIVES, "survivors"),
    (STALE, "listed, with effect"),
    (WITHOUT, "without effect"),
    (UNDECIDED, "not settled"),
)
_HEADS = ("places", *(head for _, head in _COUNTED))


def places_document(places: Sequence[Place], alarms: int) -> str:
    """Return the markdown of *places*, the same for the same places: no timings."""
    without = [place for place in places if place.outcome == WITHOUT]
    open_ones = [place for place in places if place.outcome in (UNDECIDED, SURVIVES, STALE)]
    return "\n".join(
        [
            _INTRO,
            places_summary(places, alarms),
            "",
            "## By platform",
            "",
            _counts(places, ("platform",), lambda p: (p.platform,)),
            "",
            "## By form, arithmetic and platform",
            "",
            _counts(places, ("form", "arithmetic", "platform"), lambda p: (p.form, p.arithmetic, p.platform)),
            "",
            "## Survivors and undecided places",
            "",
            _grouped(open_ones, lambda p: (p.fault, p.outcome)),
            "",
            "## Without effect",
            "",
            _grouped(without, lambda p: (p.fault, p.reason)),
            "",
        ]
    )


def places_summary(places: Sequence[Place], alarms: int) -> str:
    """Return one line: the number of places and the outcomes."""
    counts = ", ".join(f"{sum(p.outcome == name for p in places)} {head}" for name, head in _COUNTED)
    platforms = len({p.platform for p in places})
    return f"{len(places)} places on {platforms} platforms: {counts}; {alarms} alarms on unchanged operators."


def _counts(places: Iterable[Place], heads: Sequence[str], name: Callable[[Place], tuple[str, ...]]) -> str:
    rows: dict[tuple[str, ...], list[str]] = {}
    for place in places:
        rows.setdefault(name(place), []).append(place.outcome)
    return table(
        ((*key, len(found), *(found.count(outcome) for outcome, _ in _COUNTED)) for key, found in sorted(rows.items())),
        (*heads, *_HEADS),
    )


def _grouped(places: Iterable[Place], name: Callable[[Place], tuple[str, str]]) -> str:
    """Return a table of each fault's operators and platforms; operators with the same platforms share a phrase."""
    rows: dict[tuple[str, str], dict[str, set[str]]] = {}
    for place in places:
        rows.setdefault(name(place), {}).setdefault(place.op, set()).add(place.platform)
    return table(
        ((fault, why, _phrase(ops)) for (fault, why), ops in rows.items()), ("fault", "", "operators (platforms)")
    )


def _phrase(ops: dict[str, set[str]]) -> str:
    shared: dict[tuple[str, ...], list[str]] = {}
    for op, platforms in ops.items():
        shared.setdefault(tuple(sorted(platforms)), []).append(op)
    return "; ".join(f"{', '.join(names)} ({', '.join(platforms)})" for platforms, names in shared.items())
