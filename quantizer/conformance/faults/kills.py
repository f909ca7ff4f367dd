"""Runs the checks under a planted fault. Records what the fault changes and which checks find it."""

from __future__ import annotations

import copy
import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import zip_longest
from time import perf_counter

import torch
from torch import Tensor

from quantizer.conformance.checks.invariance import planned, stitched
from quantizer.conformance.checks.round_trip import float_graph
from quantizer.conformance.faults.fault import FILE_KINDS, Fault, Kind
from quantizer.conformance.faults.planting import Planting
from quantizer.conformance.judging.judge import judge
from quantizer.conformance.judging.schedule import Sample, Schedule
from quantizer.conformance.setup.session import Session
from quantizer.conformance.target import Target
from quantizer.conformance.trials.once import RAISED, once
from quantizer.conformance.trials.trial import Array, Trial
from quantizer.core.case import Case
from quantizer.core.errors import QuantizerError
from quantizer.core.verdict import EVERY
from quantizer.ir.formats.layer_files import LayerFile, layer_files, written_and_read
from quantizer.numerics.bitwise import bitwise_equal
from quantizer.numerics.quantize import dequantize

_SEEN_BY: Mapping[Kind, tuple[str, ...]] = {
    "quantized": tuple(name for name in EVERY if name not in ("parameters", "float", "round_trip")),
    "accumulate": tuple(name for name in EVERY if name not in ("parameters", "float", "round_trip")),
    "quantize": tuple(name for name in EVERY if name != "round_trip"),
    "reference": ("float", "tiled"),
    "tile": ("tiled", "repeat"),
    "convert": ("round_trip",),
    "write": ("round_trip",),
    "read": ("round_trip",),
}
"""Kind of function -> the checks that run it or read its result. A kind that is not listed concerns all checks."""
STATE = "state"
"""The place of faults that keep or damage state. Whether a check finds them depends on the checks before it."""
FURTHER = 3
"""After the first case in which a check finds a fault, all checks judge this many more cases that it changes, so that
a row names every check that finds it."""
WITHIN = 12
"""The FURTHER cases are taken from this many cases after the first one."""
_DATA = ("bound", "output_shape", "tensors", "doubles", "centre", "y", "built_in")
_HANDED = (*_DATA, "parameters", "_provided", "codes", "values", "y_hat", "centred", "sums", "sum_magnitudes")
_KEPT: Mapping[Kind, tuple[str, ...]] = {"quantize": _DATA, "quantized": _HANDED, "accumulate": _HANDED}
"""Kind of the changed function -> the parts of the unchanged run that a trial keeps. For kinds that are not listed, it
keeps all these parts and the outcome."""


Compared = tuple[Array, Array | None, float]
"""The expected real output, the actual one (None if a function raised), and the real value of one code."""


@dataclass(frozen=True)
class Kill:
    """How a check first found a fault: on which target, after how many cases and milliseconds."""

    check: str
    target: str
    cases: int
    ms: float


@dataclass
class Found:
    """The outcome of one planted fault over some cases."""

    effect: bool = False
    """Whether it changed anything."""
    kills: dict[str, Kill] = field(default_factory=dict)
    """Check -> its first finding of the fault, in the order of the findings."""

    @property
    def first(self) -> Kill | None:
        """The first kill, or None if the fault survived."""
        return next(iter(self.kills.values()), None)


class Subject:
    """One operator with some cases, and the unchanged functions' results on them, computed once for all faults."""

    def __init__(
        self,
        session: Session,
        op: str,
        cases: Iterable[tuple[Target, Case]],
        samples: Mapping[str, Sample] | None = None,
    ) -> None:
        """Take cases, ordered within each target. *samples*: target -> which checks a case runs; absent: all checks."""
        self.session, self.op = session, op
        self._samples = samples or {}
        self._schedules: dict[str, Schedule] = {}
        self._scheduled: list[tuple[str, ...]] = []
        self.trials: list[Trial] = []
        """The trials in which at least one fault was planted so far."""
        self._cases = iter(cases)
        self.alarms: dict[int, tuple[str, ...]] = {}
        """Judged case -> checks that fail on the unchanged operator. Such a check finds no fault in that case."""
        self._given: dict[tuple[int, Kind], list[object]] = {}

    def examine(self, fault: Fault) -> Found:
        """Return whether *fault* changes anything, and the checks that find it.

        The cases that it changes are judged until a check fails. A few later cases are judged to name other checks
        that find it, but none under a schedule. If no check of the changed cases fails, the other cases are judged
        as well.
        """
        found, started = Found(), perf_counter()
        further, within = (0, 0) if self._samples else (FURTHER, WITHIN)
        # two plantings, because a fault may keep state: comparing must not advance the state that checks see
        compared, watched = self.planting(fault), self.planting(fault)
        changed: list[int] = []
        last: int | None = None
        for index, _ in enumerate(self.every()):
            if (last is not None and index > last) or (len(changed) > further and found.kills):
                break
            if not self._changes(index, fault.kind, compared):
                continue
            found.effect = True
            changed.append(index)
            self._judge(index, fault, watched, found, started)
            if found.kills and last is None:
                last, changed = index + within, []
        if found.effect and not found.kills:
            # the fault may show in cases whose checks run the function in other ways than the comparison does
            for index in sorted(set(range(len(self.trials))) - set(changed)):
                self._judge(index, fault, watched, found, started)
                if found.kills:
                    break
        return found

    def examine_among(self, fault: Fault, indices: Sequence[int]) -> Found:
        """Return whether *fault* changes one of the cases *indices*, and which check first finds it."""
        found, started = Found(), perf_counter()
        compared, watched = self.planting(fault), self.planting(fault)
        changed: list[int] = []
        for number, index in enumerate(indices, 1):
            if self._changes(index, fault.kind, compared):
                found.effect = True
                changed.append(index)
                self._judge(index, fault, watched, found, started, number)
                if found.kills:
                    return found
        for number, index in enumerate(indices, 1):
            if found.effect and index not in changed:
                self._judge(index, fault, watched, found, started, number)
                if found.kills:
                    break
        return found

    def every(self) -> Iterator[Trial]:
        """Yield a trial of every case. A case is built when the first fault gets to it."""
        for index in itertools.count():
            if index == len(self.trials):
                drawn = next(self._cases, None)
                if drawn is None:
                    return
                self.trials.append(Trial(*drawn, self.session.engine))
                self._scheduled.append(self._checks(*drawn))
            yield self.trials[index]

    def _checks(self, target: Target, case: Case) -> tuple[str, ...]:
        if target.id not in self._schedules:
            self._schedules[target.id] = Schedule(target, EVERY, self._samples)
        return self._schedules[target.id].checks(case)

    def changes(self, fault: Fault) -> bool:
        """Return whether *fault* changes anything."""
        planting = self.planting(fault)
        return any(self._changes(index, fault.kind, planting) for index, _ in enumerate(self.every()))

    def planting(self, fault: Fault) -> Planting:
        """Return *fault* to be planted in this operator."""
        return Planting(fault, self.session.library.spec(self.op), tuple(self.session.library.platforms))

    def compared(self, fault: Fault) -> list[Compared]:
        """Return the expected and actual real output, and the value of one code, for each case that *fault* changes.

        Empty for a fault in a file, which changes no output.
        """
        if fault.kind in FILE_KINDS:
            return []
        planting = self.planting(fault)
        rows: list[Compared] = []
        for index, trial in enumerate(self.every()):
            if self._changes(index, fault.kind, planting):
                wanted, step = _real(trial, fault.kind)
                try:
                    with planting:
                        got, _ = _real(anew(trial, fault.kind), fault.kind)
                # other tools' tests see an exception as well as a wrong result
                except Exception:  # noqa: BLE001 - a test sees that a function raises
                    rows.append((wanted, None, step))
                else:
                    rows.append((wanted, got, step))
        return rows

    def _changes(self, index: int, kind: Kind, planting: Planting) -> bool:
        if (index, kind) not in self._given:
            self._given[index, kind] = list(given(self.trials[index], kind))
        with planting:
            return differs(self._given[index, kind], given(anew(self.trials[index], kind), kind))

    def _judge(
        self, index: int, fault: Fault, planting: Planting, found: Found, started: float, number: int | None = None
    ) -> None:
        unchanged = self.trials[index]
        # the unchanged case is judged once, and only if some fault changes it
        if index not in self.alarms:
            self.alarms[index] = tuple(verdict.check for verdict in judge(unchanged) if verdict.failing)
        checks: Sequence[str] = self._scheduled[index]
        if fault.place != STATE:
            seen = _SEEN_BY.get(fault.kind, EVERY)
            # one finding per check is enough, and the remaining checks cannot see the function
            checks = [name for name in checks if name in seen and name not in found.kills]
        trial = anew(unchanged, fault.kind)
        with planting:
            verdicts = judge(trial, checks)
        for verdict in verdicts:
            if verdict.failing and verdict.check not in self.alarms[index] and verdict.check not in found.kills:
                spent = (perf_counter() - started) * 1e3
                found.kills[verdict.check] = Kill(verdict.check, trial.target.id, number or index + 1, spent)


def anew(trial: Trial, kind: Kind) -> Trial:
    """Return *trial* without the results of the changed functions of *kind*; provided tensors are copied."""
    other = copy.copy(trial)
    kept = _KEPT.get(kind, (*_HANDED, "outcome"))
    other.__dict__ = {
        name: value
        for name, value in trial.__dict__.items()
        if name in kept or not (_computed(trial, name) or name.endswith(RAISED))
    }
    other.shared, other.matches, other.verdict_of_whole = {}, {}, None
    if "parameters" in other.__dict__:
        other.parameters = trial.parameters.copied()
    return other


def _computed(trial: Trial, name: str) -> bool:
    """Return whether a trial computes this attribute on demand; the other attributes were given to it."""
    return isinstance(getattr(type(trial), name, None), cached_property | once)


def given(trial: Trial, kind: Kind) -> Iterator[object]:
    """Yield all results of the functions of *kind* for a trial, piece by piece; the message if a function raises.

    Forwards run on the case's operands, on other operands of the same shapes, and on the case's operands again. The
    operands are yielded too, since a fault may write into them.
    """
    try:
        if kind == "tile":
            yield _tiled(trial)
        elif kind in FILE_KINDS:
            yield _in_files(trial)
        elif kind == "quantize":
            # The platform that a rule passes on is not one of its numbers: it counts through its effect on the forward.
            yield replace(trial.parameters, platform=trial.target.platform)
            yield _run(trial, "quantized", {name: torch.clone(values) for name, values in trial.codes.items()})
        else:
            operands = trial.tensors if kind == "reference" else trial.codes
            # the third run shows a function that keeps a result of an earlier run
            for change in (torch.clone, _reversed, torch.clone):
                seen = {name: change(values) for name, values in operands.items()}
                yield _run(trial, kind, seen), seen
            yield trial.parameters
    except Exception as err:  # noqa: BLE001 - a fault that makes a function raise has an effect
        yield repr(err)


def differs(before: Iterable[object], after: Iterable[object]) -> bool:
    """Return whether two runs gave different pieces. The second run stops at the first difference."""
    # a filler that equals nothing: a run that gives fewer pieces is different
    nothing = object()
    return any(
        one is nothing or other is nothing or not bitwise_equal(one, other)
        for one, other in zip_longest(before, after, fillvalue=nothing)
    )


def _tiled(trial: Trial) -> Tensor | None:
    if not trial.case.tiles.sizes:
        return None
    return torch.from_numpy(stitched(trial, planned(trial, trial.case.tiles)))


def _in_files(trial: Trial) -> list[object]:
    """Return, for each file format that can hold the operator, the graph that is read back from a written file."""
    return [_in_file(trial, file) for file in layer_files(trial.spec).values()]


def _in_file(trial: Trial, file: LayerFile) -> object:
    specs = {trial.spec.op: trial.spec}
    try:
        written = file.foreign(float_graph(trial, file.ORDER), specs)
    except QuantizerError as err:
        return repr(err)
    back = written_and_read(file, written, specs)
    return [(node.op, dict(node.attrs), node.activation) for node in back.nodes], [
        (name, tensor.shape, tensor.data) for name, tensor in back.tensors.items()
    ]


def _run(trial: Trial, kind: Kind, operands: dict[str, Tensor]) -> object:
    if kind == "reference":
        return trial.engine.run_float(trial.call, operands)
    if kind == "accumulate":
        return trial.engine.accumulate(trial.call, operands, trial.parameters)
    return trial.engine.run(trial.call, operands, trial.parameters)


def _reversed(values: Tensor) -> Tensor:
    return values.flip(tuple(range(values.dim())))


def _real(trial: Trial, kind: Kind) -> tuple[Array, float]:
    """Return the output as real numbers, and the real value of one code (0 for a float forward)."""
    if kind == "reference":
        return trial.run_float(trial.call, trial.tensors).double().numpy(), 0.0
    codes = _tiled(trial) if kind == "tile" else None
    values = dequantize(trial.outcome.codes if codes is None else codes, trial.output)
    return values.numpy(), float(trial.output.scale)
