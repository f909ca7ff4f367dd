"""Finds keys of a spec that nothing reads, by recording accesses while its cases are judged."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from quantizer.conformance.faults.cases import explicit_cases
from quantizer.conformance.generation.builder import build_case, covering_rows_of
from quantizer.conformance.generation.choice_sources import HashChoices
from quantizer.conformance.generation.examples import example_case
from quantizer.conformance.generation.hashing import key
from quantizer.conformance.judging.judge import judge
from quantizer.conformance.setup.session import Session
from quantizer.conformance.spec_checks.unreachable_declarations import outlines
from quantizer.conformance.target import Target
from quantizer.conformance.trials.trial import Trial
from quantizer.core.case import Case
from quantizer.core.library import read_spec
from quantizer.core.model import Model
from quantizer.core.spec import Spec
from quantizer.core.yaml_source import Location

WORDS = frozenset({"summary", "names", "default", "oracle"})
"""Optional keys that no case needs to read: texts for people, and keys for graphs and for other judges."""

FIRST = 24
"""The number of rows that are judged before the outlines of all rows are built."""


@contextmanager
def recorded() -> Iterator[set[tuple[int, str]]]:
    """Run a block and collect (id of a model, key) for every key that is read of any model. It must not be nested."""
    found: set[tuple[int, str]] = set()

    def read(model: Model, name: str) -> Any:
        if name[0] != "_":
            found.add((id(model), name))
        return object.__getattribute__(model, name)

    # every access of a model's field comes through this method, also from compiled expressions
    setattr(Model, "__getattribute__", read)  # noqa: B010 - a model has no such method but while it is recorded
    try:
        yield found
    finally:
        delattr(Model, "__getattribute__")


def given_keys(value: object, location: Location = ()) -> Iterator[tuple[Location, tuple[int, str]]]:
    """Yield the optional keys that are written in a model, outer keys first. The schema checks required keys."""
    if isinstance(value, Model):
        for name, field in type(value).model_fields.items():
            if name in value.model_fields_set:
                if not field.is_required() and name not in WORDS:
                    yield (*location, name), (id(value), name)
                yield from given_keys(getattr(value, name), (*location, name))
    elif isinstance(value, dict | list):
        for part, inner in value.items() if isinstance(value, dict) else enumerate(value):
            yield from given_keys(inner, (*location, part))


def unread_keys(session: Session, path: Path) -> list[Location]:
    """Return the places of the spec at *path* whose keys affect no case.

    The file is read again, because caches of an earlier run would hide that a key is read.
    """
    spec = read_spec(path)[0]
    waiting = dict(given_keys(spec))
    with recorded() as found:
        for _ in _uses(session, spec):
            waiting = {place: read for place, read in waiting.items() if read not in found}
            if not waiting:
                break
    # an unread key explains the keys below it
    return [place for place in waiting if not any(place[:size] in waiting for size in range(len(place)))]


def _uses(session: Session, spec: Spec) -> Iterator[None]:
    """Use *spec* as the gate does, step by step, beginning with the cases that read the most keys.

    A few rows are judged. Outlines of all rows then read the bins, at a tenth of the cost. All other explicit cases are
    judged only if a key is still unread, so that the result is that of all cases.
    """
    targets = session.all_targets(spec)
    for example in spec.examples:
        example_case(targets[0], example)
    for target, case in itertools.islice(_rows(targets), FIRST):
        judge(Trial(target, case, session.engine))
        yield
    for _ in outlines(targets):
        yield
    for target, case in explicit_cases(session, spec):
        judge(Trial(target, case, session.engine))
        yield


def _rows(targets: Sequence[Target]) -> Iterator[tuple[Target, Case]]:
    """Yield the rows of *targets*, a target at a time."""
    for target in targets:
        for index, row in enumerate(covering_rows_of(targets, target)):
            yield target, build_case(target, HashChoices(key(index, target.id), row))
