"""Writes docs/real_bugs.md: how many bugs from public trackers the gate finds, by class."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from tabulate import tabulate

from quantizer.conformance.real.reports import Report
from quantizer.conformance.real.run import Outcome

CAUGHT, UNMET, UNCHANGED, SURVIVES, UNREACHED = (
    "caught",
    "no case meets the condition",
    "changes nothing where the condition holds",
    "survives",
    "out of reach",
)
_INTRO = """# Bugs that others reported

Written by `quantizer faults --real -o docs/real_bugs.md`; do not edit. Each line of `cases/real_bugs/` is a thread \
of a public tracker about a
quantized kernel, rule or converter that gave wrong results. Where a case can express the bug, it is planted in place \
of the built-in function, under the
condition that was reported. The gate's cases and the checks that the gate runs on them then judge it. No case was \
made for a single report; classes
of cases were added for what the gate missed, so the totals say more about the gate now than about bugs that nobody \
reported yet.
A bug that needs two nodes is planted as a wrong rewrite of one of the graphs in `graph_specs/`, whose codes must \
not change.
Each planted bug has a correct twin. Under the same condition the twin computes the correct result from other memory. \
It must pass.
The twins of a rewrite are the correct rewrites of the same graph.
A report that is planted in several operators counts as caught only if it is caught in all of them.
"""
_SAMPLES = """A sample is a set of reports that was drawn when the cases were finished. What the gate found of it \
before anything was changed is the only
figure here without that bias. It stays as it is; the last column says what the gate finds of the same reports now.
"""


def standing(report: Report, outcomes: Sequence[Outcome]) -> str:
    """Return the outcome of a report, which is the worst outcome among its operators."""
    if report.unreached:
        return UNREACHED
    found = [_one(outcome) for outcome in outcomes]
    return max(found, key=(CAUGHT, UNCHANGED, UNMET, SURVIVES).index)


def _one(outcome: Outcome) -> str:
    if outcome.check:
        return CAUGHT
    if not outcome.met:
        return UNMET
    return SURVIVES if outcome.changed else UNCHANGED


def summary(reports: Sequence[Report], outcomes: Sequence[Outcome]) -> str:
    """Return one line: the numbers of reports, of planted ones, of found ones, and of missed ones."""
    count = _counts(reports, outcomes)
    alarms = sum(bool(outcome.twin) for outcome in outcomes)
    planted = len(reports) - count[UNREACHED]
    return (
        f"{len(reports)} reports, {planted} planted in {len(outcomes)} places: {count[CAUGHT]} caught, "
        f"{count[SURVIVES]} survive, "
        f"{count[UNMET]} whose condition no case meets, {count[UNCHANGED]} that change nothing; {count[UNREACHED]} "
        f"out of reach; "
        f"{alarms} alarms on right twins."
    )


def document(
    reports: Sequence[Report], outcomes: Sequence[Outcome], first: Mapping[str, Mapping[str, int]] | None = None
) -> str:
    """Return the page, the same for the same outcomes; *first*: the outcomes of each sample when it was drawn."""
    parts = [_INTRO, summary(reports, outcomes), ""]
    if first:
        parts += ["## Samples", "", _SAMPLES, _samples(reports, outcomes, first), ""]
    parts += ["## By class", "", _by_class(reports, outcomes), ""]
    of = _of(outcomes)
    for title, name in (("Not caught", None), ("Out of reach", UNREACHED), ("Caught", CAUGHT)):
        chosen = [r for r in reports if _is(standing(r, of.get(r.ref, ())), name)]
        parts += [f"## {title}", "", _table(chosen, of), ""]
    return "\n".join(parts)


def _samples(reports: Sequence[Report], outcomes: Sequence[Outcome], first: Mapping[str, Mapping[str, int]]) -> str:
    rows = []
    for day, then in sorted(first.items()):
        own = [report for report in reports if report.sample == day]
        planted = sum(then.values()) - then["unreached"]
        missed = (then[name] for name in ("survive", "unmet", "unchanged", "unreached"))
        rows.append((day, len(own), planted, then["caught"], *missed, _counts(own, outcomes)[CAUGHT]))
    headers = [
        "drawn",
        "reports",
        "planted",
        "caught at once",
        SURVIVES,
        UNMET,
        "changes nothing",
        UNREACHED,
        "caught now",
    ]
    return tabulate(rows, headers=headers, tablefmt="github")


def _is(found: str, name: str | None) -> bool:
    return found == name if name else found not in (CAUGHT, UNREACHED)


def _table(reports: Iterable[Report], of: Mapping[str, Sequence[Outcome]]) -> str:
    rows = [
        (
            f"[{report.ref}](https://github.com/{report.ref.replace('#', '/issues/')})",
            report.system,
            report.kind,
            report.what,
            ", ".join(report.ops or (outcome.op for outcome in of.get(report.ref, ()))),
            f"`{report.when.text}`" if report.when else report.rewrite,
            _said(report, of.get(report.ref, ())),
        )
        for report in reports
    ]
    return tabulate(
        rows, headers=["thread", "system", "class", "what", "planted in", "where", "found by"], tablefmt="github"
    )


def _said(report: Report, outcomes: Sequence[Outcome]) -> str:
    if report.unreached:
        return report.unreached
    return "; ".join(dict.fromkeys(f"{o.check} after {o.met}" if o.check else f"{o.op}: {_one(o)}" for o in outcomes))


def _by_class(reports: Sequence[Report], outcomes: Sequence[Outcome]) -> str:
    kinds = sorted({report.kind for report in reports})
    rows = []
    for kind in kinds:
        count = _counts([report for report in reports if report.kind == kind], outcomes)
        planted = count[CAUGHT] + count[SURVIVES] + count[UNMET] + count[UNCHANGED]
        rows.append((kind, sum(count.values()), planted, count[CAUGHT], planted - count[CAUGHT], count[UNREACHED]))
    headers = ["class", "reports", "planted", "caught", "not caught", "out of reach"]
    return tabulate(rows, headers=headers, tablefmt="github")


def _counts(reports: Sequence[Report], outcomes: Sequence[Outcome]) -> dict[str, int]:
    of = _of(outcomes)
    found = dict.fromkeys((CAUGHT, SURVIVES, UNMET, UNCHANGED, UNREACHED), 0)
    for report in reports:
        found[standing(report, of.get(report.ref, ()))] += 1
    return found


def _of(outcomes: Sequence[Outcome]) -> dict[str, list[Outcome]]:
    found: dict[str, list[Outcome]] = {}
    for outcome in outcomes:
        found.setdefault(outcome.ref, []).append(outcome)
    return found
