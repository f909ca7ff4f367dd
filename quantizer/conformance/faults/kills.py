"""Planting a fault and seeing what finds it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass

from quantizer.conformance.faults.catalogue import Fault
from quantizer.conformance.generation.builder import build_case, rows
from quantizer.conformance.generation.choosers import HashChooser
from quantizer.conformance.generation.examples import example_case
from quantizer.conformance.generation.hashing import key
from quantizer.conformance.judge import judge
from quantizer.conformance.session import Session
from quantizer.conformance.target import Target
from quantizer.conformance.trial import Trial
from quantizer.core.case import Case
from quantizer.numerics.parameters import default_parameters
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
    places = [place for place in (None, *platforms) if place is None or _own(op, fault.kind, place)]
    originals = [(place, _original(fault.kind, op, place)) for place in places]
    with ExitStack() as stack:
        for place, original in originals:
            stack.enter_context(REGISTRY.overridden(op, fault.kind, fault.wrap(original), place))
        yield


def _own(op: str, kind: FunctionKind, platform: str) -> bool:
    return bool(REGISTRY.entries.get((op, kind, platform)))


def _original(kind: FunctionKind, op: str, platform: str | None) -> Function:
    entry = REGISTRY.find(op, kind, platform)
    if entry is not None:
        return entry.function
    return default_parameters if kind == "quantize" else tiles


def gate_cases(session: Session, op: str) -> Iterator[tuple[Target, Case]]:
    """Yield the explicit cases of the gate profile, interleaved over the targets of *op*."""
    spec = session.library.spec(op)
    targets = session.all_targets(spec)
    names = [target.id for target in targets]
    waiting = []
    for target in targets:
        own = [example_case(target, e) for e in spec.examples]
        own += [
            build_case(target, HashChooser(key(i, target.id), row))
            for i, row in enumerate(rows(spec, names, target.id))
        ]
        waiting.append((target, own))
    for turn in range(max(len(own) for _, own in waiting)):
        for target, own in waiting:
            if turn < len(own):
                yield target, own[turn]


def kill(session: Session, fault: Fault, op: str, cases: list[tuple[Target, Case]]) -> Kill | None:
    """Return how *fault* in *op* is found over *cases*, or None where it survives them."""
    with applied(fault, op, session.library.platforms):
        for count, (target, case) in enumerate(cases, start=1):
            for verdict in judge(Trial(target, case, session.engine)):
                if verdict.failing:
                    return Kill(target.id, verdict.check, count)
    return None
