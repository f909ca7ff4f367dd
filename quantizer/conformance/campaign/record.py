"""The results of a whole campaign, as data and as a table."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import dataclass, field
from typing import Any

from tabulate import tabulate

from quantizer.conformance.campaign.entries import BINS
from quantizer.conformance.campaign.plan import Plan


@dataclass
class Failure:
    """The failures of one cause: their number, the earliest one, and its smallest case once that is known."""

    check: str
    count: int
    unit: int
    finding: str
    case: str
    smallest: str | None = None
    shrunk_unit: int = -1

    @property
    def is_shrunk(self) -> bool:
        """Whether the smallest case was shrunk from the earliest failure, or there is no case to shrink."""
        return self.shrunk_unit == self.unit or not self.case


@dataclass
class Totals:
    """Sums over the units of a campaign. They do not depend on the order of units."""

    units: set[int] = field(default_factory=set)
    examples: int = 0
    elements: int = 0
    checks: dict[str, dict[str, Counter[str]]] = field(default_factory=dict)
    histograms: dict[str, dict[str, list[int]]] = field(default_factory=dict)
    failures: dict[str, Failure] = field(default_factory=dict)

    def add(self, entry: dict[str, Any]) -> None:
        """Add one entry of the journal: a unit, or the smallest case of a failure."""
        if "shrunk" in entry:
            known = self.failures.get(entry["shrunk"])
            if known is not None:
                known.smallest, known.shrunk_unit = entry["case"], entry["of"]
            return
        # a unit whose worker was given up may have finished after all
        if entry["unit"] in self.units:
            return
        self.units.add(entry["unit"])
        self.examples += entry["examples"]
        self.elements += entry["elements"]
        op = entry["target"].split("-")[0]
        for check, statuses in entry["checks"].items():
            self.checks.setdefault(op, {}).setdefault(check, Counter()).update(statuses)
        for check, bins in entry["histograms"].items():
            own = self.histograms.setdefault(op, {}).setdefault(check, [0] * (BINS + 1))
            own[:] = [a + b for a, b in zip(own, bins, strict=True)]
        for found in entry["failures"]:
            self._add_failure(found, entry["unit"])

    def _add_failure(self, found: dict[str, str], unit: int) -> None:
        known = self.failures.get(found["cause"])
        if known is None:
            self.failures[found["cause"]] = Failure(found["check"], 1, unit, found["finding"], found["case"])
            return
        known.count += 1
        # the earliest unit gives the case, so that the record does not depend on the order of units
        if unit < known.unit:
            known.unit, known.finding, known.case = unit, found["finding"], found["case"]

    def record(self, plan: Plan, tree: str) -> dict[str, Any]:
        """Return the record of the campaign: no times, sorted, the same for any number of workers."""
        return {
            "version": 1,
            "plan": plan.digest,
            "seed": plan.seed,
            "engine": plan.engine,
            "tree": tree,
            "targets": len(plan.targets),
            "examples": self.examples,
            "elements": self.elements,
            "alarms": sum(failure.count for failure in self.failures.values()),
            "checks": {
                op: {c: dict(sorted(s.items())) for c, s in sorted(own.items())}
                for op, own in sorted(self.checks.items())
            },
            "histograms": {op: dict(sorted(own.items())) for op, own in sorted(self.histograms.items())},
            "failures": {
                name: {
                    "check": f.check,
                    "count": f.count,
                    "finding": f.finding,
                    "case": json.loads(f.smallest or f.case or "null"),
                }
                for name, f in sorted(self.failures.items())
            },
        }


def markdown(record: dict[str, Any]) -> str:
    """Return the record as a document: a table with a row for each operator and a histogram for each check."""
    checks = sorted({check for own in record["histograms"].values() for check in own})
    rows = [
        [op, f"{max(sum(s.values()) for s in record['checks'][op].values()):,}"]
        + [_spark(own.get(check)) for check in checks]
        for op, own in record["histograms"].items()
    ]
    lines = [
        "# Campaign: generated cases, and how near they come to their bounds",
        "",
        f"Written by `quantizer campaign --examples {record['examples']} --seed {record['seed']}`: "
        f"{record['examples']:,} data sets of",
        f"{record['targets']} targets, {record['elements']:,} elements, **{record['alarms']} false alarms**. Tree "
        f"`{record['tree']}`.",
        "",
        "Each cell is a histogram of `ratio` = error / allowed over the cases that passed a check. It has ten steps "
        "from 0 to 1. The height of a",
        "step is logarithmic: `.` is none, 1 to 9 are powers of four. A loose bound leaves the right end empty. A "
        "bound that is too tight",
        "raises an alarm.",
        "",
        *tabulate(rows, headers=["operator", "cases", *checks], tablefmt="github", disable_numparse=True).splitlines(),
    ]
    return "\n".join(lines) + "\n"


def _spark(bins: list[int] | None) -> str:
    if bins is None:
        return ""
    # twenty bins become ten steps; the last bin, of ratios above 1, is not shown: those are alarms
    pairs = [a + b for a, b in zip(bins[:-1:2], bins[1::2], strict=True)]
    return "`" + "".join("." if n == 0 else str(min(9, 1 + (n.bit_length() - 1) // 2)) for n in pairs) + "`"
