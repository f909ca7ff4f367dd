"""Planting a fault and seeing what finds it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass

import torch
from torch import Tensor

from quantizer.conformance.checks.variants import planned
from quantizer.conformance.faults.catalogue import Fault
from quantizer.conformance.generation.builder import build_case, dealt
from quantizer.conformance.generation.choosers import HashChooser
from quantizer.conformance.generation.examples import example_case
from quantizer.conformance.generation.hashing import key
from quantizer.conformance.judge import judge
from quantizer.conformance.session import Session
from quantizer.conformance.target import Target
from quantizer.conformance.trial import Trial
from quantizer.core.case import Case
from quantizer.core.spec import Spec
from quantizer.numerics.parameters import default_parameters
from quantizer.numerics.same import same
from quantizer.ops import REGISTRY, Function, FunctionKind
from quantizer.tiling.windows import tiles


@dataclass(frozen=True)
class Kill:
    """How a fault was found: the target and check that failed first, after how many cases."""

    target: str
    check: str
    cases: int


@contextmanager
def applied(fault: Fault, op: str, platforms: Mapping[str, object]) -> Iterator[None]:
    """Run a block with *fault* in every function of *op* that it concerns, on every platform."""
    originals = [(place, _original(fault.kind, op, place)) for place in (None, *platforms)]
    with ExitStack() as stack:
        for place, original in originals:
            if original is not None:
                stack.enter_context(REGISTRY.overridden(op, fault.kind, fault.wrap(original), place))
        yield


def _original(kind: FunctionKind, op: str, platform: str | None) -> Function | None:
    """Return what runs on *platform* (None: where no platform has its own), or None where it has nothing of its own."""
    own = REGISTRY.entries.get((op, kind, platform))
    if kind == "quantized":
        own = own or REGISTRY.entries.get((op, "accumulate", platform))
    if platform is not None and not own:
        return None
    entry = REGISTRY.find(op, kind, platform)
    defaults: Mapping[FunctionKind, Function] = {"quantize": default_parameters, "tile": tiles}
    return entry.function if entry is not None else defaults.get(kind)


def gate_cases(session: Session, op: str) -> Iterator[tuple[Target, Case]]:
    """Yield the explicit cases of the gate profile, interleaved over the targets of *op*."""
    return explicit_cases(session, session.library.spec(op))


def explicit_cases(session: Session, spec: Spec, most_targets: int | None = None) -> Iterator[tuple[Target, Case]]:
    """Yield the examples and rows of *spec*, each built when it is asked for: one of every target, then the next.

    most_targets: of so many targets only, spread over all of them.
    """
    everything = session.all_targets(spec)
    targets = everything[:: -(-len(everything) // most_targets)] if most_targets else everything
    waiting = {target.id: _explicit(target, everything) for target in targets}
    while waiting:
        for target in targets:
            own = waiting.get(target.id)
            case = next(own, None) if own is not None else None
            if case is not None:
                yield target, case
            else:
                waiting.pop(target.id, None)


def _explicit(target: Target, everything: Sequence[Target]) -> Iterator[Case]:
    for example in target.spec.examples:
        yield example_case(target, example)
    for index, row in enumerate(dealt(everything, target)):
        yield build_case(target, HashChooser(key(index, target.id), row))


def kill(session: Session, fault: Fault, op: str, cases: list[tuple[Target, Case]]) -> Kill | None:
    """Return how *fault* in *op* is found over *cases*, or None where it survives them."""
    with applied(fault, op, session.library.platforms):
        for count, (target, case) in enumerate(cases, start=1):
            for verdict in judge(Trial(target, case, session.engine)):
                if verdict.failing:
                    return Kill(target.id, verdict.check, count)
    return None


def has_effect(session: Session, fault: Fault, op: str, cases: Iterable[tuple[Target, Case]]) -> bool:
    """Return whether *fault* changes anything in *op* over *cases*; where it does not, it is not applicable there.

    What is compared is what the changed function gives and what it leaves of its operands, on the operands of the case
    and then on others of the same shapes.
    """
    for target, case in cases:
        before = _given(session, fault.kind, target, case)
        with applied(fault, op, session.library.platforms):
            after = _given(session, fault.kind, target, case)
        if not same(before, after):
            return True
    return False


def _given(session: Session, kind: FunctionKind, target: Target, case: Case) -> object:
    """Return everything that the functions of *kind* give for *case*; of one that raises, what it says."""
    trial = Trial(target, case, session.engine)
    try:
        if kind == "tile":
            return planned(trial, case.tiles)
        parameters = trial.parameters
        if kind == "quantize":
            return parameters
        operands = trial.tensors if kind == "reference" else trial.codes
        found: list[object] = []
        for change in (torch.clone, _reversed, torch.clone):
            seen = {name: change(values) for name, values in operands.items()}
            found += [_run(trial, kind, seen), seen]
    except Exception as err:  # noqa: BLE001 - a fault that makes a function raise has an effect
        return repr(err)
    return found, parameters


def _run(trial: Trial, kind: FunctionKind, operands: dict[str, Tensor]) -> object:
    if kind == "reference":
        return trial.engine.run_float(trial.call, operands)
    if kind == "accumulate":
        return trial.engine.accumulate(trial.call, operands, trial.parameters)
    return trial.engine.run(trial.call, operands, trial.parameters)


def _reversed(values: Tensor) -> Tensor:
    return values.flip(tuple(range(values.dim())))
