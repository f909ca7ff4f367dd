"""docs/faults.md: the kill matrix as a document, by fault, by operator, and by the tolerances of other tools."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from statistics import mean, median

from tabulate import tabulate

from quantizer.conformance.faults.catalogue import catalogue
from quantizer.conformance.faults.matrix import Result, Row
from quantizer.conformance.faults.places import KILLED, SURVIVES, WITHOUT
from quantizer.conformance.faults.policies import policies
from quantizer.core.wording import counted

_INTRO = """# What the gate finds

Written by `quantizer faults --peers -o docs/faults.md`; do not edit. Every fault of the catalogue \
(`quantizer/conformance/faults/`) is
planted in every operator that it concerns. The planted functions replace the built-in ones, as functions of a plugin \
do. The gate's own cases
are judged until a check fails. The end of the page lists the pairs that have no effect in these cases, each with the \
reason. `--corpus` looks for an
effect in 20,000 generated cases of the operator. Half of these are tied or use the whole range of the codes.
"""
_PEERS = """
## By the tolerances of other tools

These are the same faults on the same cases, judged as other tools compare an operator with its reference \
(`policies.py` names each source). The
changed operator is compared with the unchanged one, which is the most favourable reference.

* *Share*: how many of the cases that a fault changes fail, averaged over all pairs that have an output to compare.
* *Pairs*: the pairs for which at least one of the gate's cases fails.

The gate's cases are made to show faults. On random data the shares of the looser policies are about half as large \
(400 convolutions and 23
faults, measured before this project).
"""


def document(results: Sequence[Result]) -> str:
    """Return the markdown of *results*, the same for the same rows: no timings."""
    # rows come by operator; the tables list faults in the order of the catalogue
    order = {fault.id: place for place, fault in enumerate(catalogue())}
    rows = sorted((row for result in results for row in result.rows), key=lambda row: order[row.fault])
    parts = [_INTRO, summary(results), "", "## By operator", "", _by_operator(results), "", "## By fault", ""]
    parts += [_by_fault(rows), _PEERS, _policies(rows), "", "Share of affected cases found, by fault:", ""]
    parts += [_peers_by_fault(rows), "", "## Without effect", "", _without(rows), ""]
    return "\n".join(parts)


def summary(results: Sequence[Result]) -> str:
    """Return one line: pairs, kills, survivors, pairs without effect, alarms."""
    rows = [row for result in results for row in result.rows]
    alarms = sum(len(result.alarms) for result in results)
    found = {name: sum(row.outcome == name for row in rows) for name in (KILLED, SURVIVES, WITHOUT)}
    other = len(rows) - sum(found.values())
    return (
        f"{counted(len({row.fault for row in rows}), 'fault')} in {counted(len(results), 'operator')}: "
        f"{counted(len(rows), 'pair')}, {found[KILLED]} found, {counted(found[SURVIVES], 'survivor')}, "
        f"{found[WITHOUT]} without effect"
        + (f", {other} not settled" if other else "")
        + f"; {counted(alarms, 'alarm')} on unchanged operators."
    )


def table(rows: Iterable[Sequence[object]], headers: Sequence[str]) -> str:
    """Return the rows as a table of Markdown."""
    return tabulate(list(rows), headers=list(headers), tablefmt="github")


def _group(rows: Iterable[Row], name: Callable[[Row], str]) -> dict[str, list[Row]]:
    found: dict[str, list[Row]] = {}
    for row in rows:
        found.setdefault(name(row), []).append(row)
    return found


def _killed(rows: Iterable[Row]) -> list[Row]:
    return [row for row in rows if row.outcome == KILLED]


def _cases(rows: Sequence[Row]) -> str:
    needed = [row.kills[0].cases for row in rows]
    return f"{median(needed):g} / {max(needed)}" if needed else "-"


def _by_operator(results: Sequence[Result]) -> str:
    return table(
        (
            (
                result.op,
                result.cases,
                len(result.rows),
                len(_killed(result.rows)),
                sum(row.outcome == SURVIVES for row in result.rows),
                sum(row.outcome == WITHOUT for row in result.rows),
                _cases(_killed(result.rows)),
            )
            for result in results
        ),
        ("operator", "cases", "pairs", "found", "survivors", "without effect", "cases needed, median / most"),
    )


def _by_fault(rows: Sequence[Row]) -> str:
    def line(name: str, own: list[Row]) -> tuple[object, ...]:
        killed = _killed(own)
        checks = dict.fromkeys(kill.check for row in killed for kill in row.kills)
        survivors = ", ".join(row.op for row in own if row.outcome == SURVIVES) or "-"
        return name, own[0].place, len(own), len(killed), survivors, ", ".join(checks), _cases(killed)

    return table(
        (line(name, own) for name, own in _group(rows, lambda row: row.fault).items()),
        ("fault", "place", "pairs", "found", "survivors", "checks that find it", "cases needed, median / most"),
    )


def _share(rows: Iterable[Row], policy: str) -> str:
    # a mean over pairs, so that an operator with many cases does not outweigh the others
    shares = [row.peers[policy] for row in rows if policy in row.peers and row.peers[policy].cases]
    return f"{mean(share.found / share.cases for share in shares):.0%}" if shares else "-"


def _policies(rows: Sequence[Row]) -> str:
    def line(name: str, source: str) -> tuple[object, ...]:
        compared = [row.peers[name] for row in _killed(rows) if name in row.peers and row.peers[name].cases]
        seen = sum(share.found > 0 for share in compared)
        missed = len(compared) - seen
        return name, source, _share(rows, name), f"{seen} of {len(compared)}", missed

    killed = _killed(rows)
    return table(
        (
            ("this gate", "derived bounds", "", f"{len(killed)} of {len(killed)}", 0),
            *(line(policy.name, policy.source) for policy in policies()),
        ),
        ("policy", "source", "share", "pairs", "pairs never found"),
    )


def _peers_by_fault(rows: Sequence[Row]) -> str:
    names = [policy.name for policy in policies()]
    return table(
        (
            (fault, *(_share(own, name) for name in names))
            for fault, own in _group(rows, lambda row: row.fault).items()
            if any(row.peers for row in own)
        ),
        ("fault", *names),
    )


def _without(rows: Sequence[Row]) -> str:
    silent = [row for row in rows if row.outcome == WITHOUT]
    grouped = _group(silent, lambda row: f"{row.fault}\n{row.reason}")
    return table(
        ((own[0].fault, ", ".join(row.op for row in own), own[0].reason) for own in grouped.values()),
        ("fault", "operators", "reason"),
    )
