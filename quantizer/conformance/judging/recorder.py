"""Adds up the verdicts of an item's cases to one record."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

import numpy as np
from msgspec.structs import replace

from quantizer.conformance.checks.accumulators import leaves_accumulator
from quantizer.conformance.findings import Findings
from quantizer.conformance.generation.builder import coverage
from quantizer.conformance.grids import decoded, positions
from quantizer.conformance.judging.dataset_assertions import missed_targets
from quantizer.conformance.trials.parts import part_of
from quantizer.conformance.trials.trial import Array, Trial
from quantizer.core.record import CheckRecord, Record
from quantizer.core.verdict import SHARP_WIDTH, Verdict
from quantizer.reporting.tally import ERROR

_COUNTED = {
    "pass": "passed",
    "fail": "failed",
    "mistrusted": "mistrusted",
    "overflow": "overflow",
    "defect": "defects",
    "inconclusive": "inconclusive",
}


SHARP = "arithmetic=sharp"
"""A coverage entry that a case reaches only if its `arithmetic` interval has at most 2 codes."""


LEFT = "accumulator=left"
"""The coverage entry of sums that leave an accumulator that wraps or saturates."""


class Recorder:
    """Adds up verdicts; the order of cases does not change the record."""

    def __init__(self, record: Record) -> None:
        self._record = record
        self._checks: dict[str, CheckRecord] = {}
        self._coverage: set[str] = set()
        self._sqnr = math.inf
        self._error: float | None = None
        self._cases = self._data_sets = 0
        self._blunt = False
        self._missed: set[str] = set()

    @property
    def coverage(self) -> frozenset[str]:
        """The coverage of the cases so far."""
        return frozenset(self._coverage)

    def add(self, trial: Trial, verdicts: Sequence[Verdict], *, figures: bool = True) -> None:
        """Add the verdicts and coverage of one case; with *figures*, also its SQNR and error.

        The figures of a stack are those of its first part.

        Cases at the ends of the possible parameters have no ratio: their worst would hide a regression of all others.
        """
        self._cases += 1
        self._data_sets += trial.data_sets
        if trial.refusal is not None and verdicts[0].check == "engine":
            self._checks["engine"] = _added(self._checks.get("engine", CheckRecord()), verdicts[0])
            return
        reached = coverage(trial.target, trial.case)
        failing = any(verdict.failing for verdict in verdicts)
        # only data sets that no case has covered yet need to be looked at
        open_ = {name for name in trial.case.data.sets if f"data={name}" not in self._coverage}
        nothing = failing or any(_is_without_codes(verdict) for verdict in verdicts)
        lost = open_ if nothing else missed_targets(trial, open_)
        reached |= {LEFT} if not nothing and leaves_accumulator(trial) else set()
        reached -= {f"data={name}" for name in lost}
        self._coverage |= reached
        for verdict in verdicts:
            self._blunt |= verdict.check == "arithmetic" and verdict.width > SHARP_WIDTH
            self._checks[verdict.check] = _added(self._checks.get(verdict.check, CheckRecord()), verdict)
        ran = any(verdict.check not in ("parameters", "float") for verdict in verdicts)
        if nothing or not figures:
            return
        if ran and trial.case.data.sets[0] == "random":
            self._sqnr = min(self._sqnr, sqnr(part_of(trial, 0)))
        if any(verdict.check == "accuracy" and verdict.status == "pass" for verdict in verdicts):
            self._error = max(self._error or 0.0, error_lsb(part_of(trial, 0)))

    def count(self, verdicts: Iterable[Verdict]) -> None:
        """Add the verdicts of one case of a graph."""
        self._cases += 1
        for verdict in verdicts:
            self._checks[verdict.check] = _added(self._checks.get(verdict.check, CheckRecord()), verdict)

    def compared(self, name: str, found: Findings) -> None:
        """Count the comparisons of an item without generated cases, as a check called *name*."""
        self._checks[name] = found.check()

    def miss(self, reason: str) -> None:
        """Count a requested case that cannot be run here at all."""
        self._missed.add(reason)

    def record(self, outcome: str, wanted: Iterable[str] = (), failure: str = "") -> Record:
        """Return the record of the item; *wanted* is the requested coverage."""
        metrics = {"sqnr_db": round(self._sqnr, 3)} if math.isfinite(self._sqnr) else {}
        metrics |= {ERROR: float(f"{self._error:.6g}")} if self._error is not None else {}
        several = self._data_sets if self._data_sets > self._cases else 0
        return replace(
            self._record,
            outcome=outcome,
            cases=self._cases,
            data_sets=several,
            checks=dict(sorted(self._checks.items())),
            coverage=tuple(sorted(self._coverage)),
            gaps=tuple(sorted({*wanted, *([SHARP] if self._blunt else [])} - self._coverage | self._missed)),
            metrics=metrics,
            failure=failure,
        )


def _is_without_codes(verdict: Verdict) -> bool:
    """Return whether a declared defect left nothing to compare: the function raised or its process ended.

    With an unstable defect, a check that passes counts as a defect, too. It has codes, so its coverage counts in every
    run.
    """
    return verdict.status == "defect" and verdict.worst is None and math.isinf(verdict.ratio)


def _added(known: CheckRecord, verdict: Verdict) -> CheckRecord:
    field = _COUNTED[verdict.status]
    reasons = set(known.reasons)
    if verdict.status in ("inconclusive", "defect", "overflow"):
        reasons.add(verdict.reason)
    ratio = verdict.ratio if verdict.status in ("pass", "fail", "mistrusted") else 0.0
    return replace(
        known,
        **{field: getattr(known, field) + 1},
        elements=known.elements + verdict.elements,
        vacuous=known.vacuous + verdict.vacuous,
        ratio=max(known.ratio, _rounded(ratio)),
        width=max(known.width, verdict.width),
        reasons=tuple(sorted(reasons)),
    )


def _rounded(ratio: float) -> float:
    """Return *ratio* to six digits, but never across 1: a fault stays above it."""
    if not math.isfinite(ratio):
        return ratio
    short = float(f"{ratio:.6g}")
    return short if (short > 1.0) == (ratio > 1.0) else ratio


def error_lsb(trial: Trial) -> float:
    """Return the largest distance of an output from the reference, saturated as codes are, in steps of the output."""
    if trial.spec.outputs["y"].kind != "value" or not trial.got.size:
        return 0.0
    output = trial.output
    scale, zero = float(output.scale), int(output.zero_point)
    exact = np.clip(positions(trial.y / scale, output), output.qmin - zero, output.qmax - zero)
    return float(np.abs(trial.got - zero - exact).max())


def sqnr(trial: Trial, codes: Array | None = None) -> float:
    """Return 10 log10(sum y^2 / sum (deq(q) - y)^2) in dB, of *codes* if given; infinite without error or signal."""
    if trial.spec.outputs["y"].kind != "value":
        return math.inf
    scale, zero = float(trial.output.scale), int(trial.output.zero_point)
    got = trial.got if codes is None else codes.reshape(trial.got.shape)
    noise = float(np.square(scale * decoded(got, trial.output, zero) - trial.y).sum())
    signal = float(np.square(trial.y).sum())
    return 10 * math.log10(signal / noise) if noise > 0 and signal > 0 else math.inf
