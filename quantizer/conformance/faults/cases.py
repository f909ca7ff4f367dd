"""Cases in which faults are planted: the gate's, and a fixed corpus that decides whether a fault has an effect."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence

from quantizer.conformance.agreement.measure import random_cases, tied_cases
from quantizer.conformance.generation.builder import covering_rows_of, tile_plan
from quantizer.conformance.generation.choice_sources import HashChoices
from quantizer.conformance.generation.examples import example_case
from quantizer.conformance.generation.extra_cases import EXTRA_CASES, shared_cases
from quantizer.conformance.generation.hashing import key
from quantizer.conformance.generation.stacks import row_case
from quantizer.conformance.setup.session import Session
from quantizer.conformance.target import Target
from quantizer.core.case import Case
from quantizer.core.spec import Spec

CORPUS = 20_000
"""A fault has no effect in an operator if it leaves this many cases of the operator unchanged."""


def gate_cases(session: Session, op: str, platform: str | None = None) -> Iterator[tuple[Target, Case]]:
    """Yield the explicit cases of the gate profile for *op*, on all platforms or one, with the targets in rotation."""
    everything = session.all_targets(session.library.spec(op))
    return _of_targets([target for target in everything if platform in (None, target.platform.platform)], everything)


def number_of_cases(session: Session, op: str) -> int:
    """Return how many explicit cases the gate profile has for *op*."""
    spec = session.library.spec(op)
    everything = session.all_targets(spec)
    return sum(
        len(spec.examples)
        + len(covering_rows_of(everything, target))
        + sum(len(several(target)) for several in EXTRA_CASES)
        + len(shared_cases(everything, target))
        for target in everything
    )


def explicit_cases(session: Session, spec: Spec, most_targets: int | None = None) -> Iterator[tuple[Target, Case]]:
    """Yield the examples, rows and extra cases of *spec*, built on demand: one of each target in rotation.

    most_targets: at most this many targets, spread over all of them.
    """
    everything = session.all_targets(spec)
    # every n-th target, n rounded up
    targets = everything[:: -(-len(everything) // most_targets)] if most_targets else everything
    return _of_targets(targets, everything)


def _of_targets(targets: Sequence[Target], everything: Sequence[Target]) -> Iterator[tuple[Target, Case]]:
    return _interleaved({target.id: (target, _explicit(target, everything)) for target in targets})


def corpus(session: Session, spec: Spec, size: int = CORPUS) -> Iterator[tuple[Target, Case]]:
    """Yield *size* generated cases over all targets of *spec*, half of them with random scales and data.

    The other half is under powers of two, where sums are solved for ties or take the whole range of the codes. Tiles
    are drawn for each case.
    """
    targets = session.all_targets(spec)
    streams = {t.id: (t, _cut(t, _alternating(random_cases(t), tied_cases(t)))) for t in targets}
    return itertools.islice(_interleaved(streams), size)


def _alternating(first: Iterator[Case], second: Iterator[Case]) -> Iterator[Case]:
    for pair in zip(first, second, strict=True):
        yield from pair


def _cut(target: Target, cases: Iterator[Case]) -> Iterator[Case]:
    for index, case in enumerate(cases):
        yield case.but(tiles=tile_plan(target, case, HashChoices(key(index, "corpus", target.id), {})))


def _interleaved(streams: dict[str, tuple[Target, Iterator[Case]]]) -> Iterator[tuple[Target, Case]]:
    # one case of each target in turn, so that a fault of any target shows early
    while streams:
        for name, (target, stream) in list(streams.items()):
            case = next(stream, None)
            if case is None:
                streams.pop(name)
            else:
                yield target, case


def _explicit(target: Target, everything: Sequence[Target]) -> Iterator[Case]:
    for example in target.spec.examples:
        yield example_case(target, example)
    for index, row in enumerate(covering_rows_of(everything, target)):
        yield row_case(target, index, row)
    for several in EXTRA_CASES:
        yield from several(target)
    yield from shared_cases(everything, target)
