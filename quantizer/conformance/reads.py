"""Which keys of a spec something reads: recorded while its cases are judged, so that a key without effect is found."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from quantizer.conformance.faults.cases import explicit_cases
from quantizer.conformance.generation.examples import example_case
from quantizer.conformance.judge import judge
from quantizer.conformance.session import Session
from quantizer.conformance.trial import Trial
from quantizer.core.library import read_spec
from quantizer.core.model import Model
from quantizer.core.yaml_source import Location

WORDS = frozenset({"summary", "names", "default", "oracle"})
"""Optional keys that no case needs: words for readers, and what graphs and judges of other systems ask for."""


@contextmanager
def recorded() -> Iterator[set[tuple[int, str]]]:
    """Run a block and collect (id of a model, key) for every key that it reads of any model; not to be nested."""
    found: set[tuple[int, str]] = set()

    def read(model: Model, name: str) -> Any:
        if name[0] != "_":
            found.add((id(model), name))
        return object.__getattribute__(model, name)

    setattr(Model, "__getattribute__", read)  # noqa: B010 - a model has no such method but while it is recorded
    try:
        yield found
    finally:
        delattr(Model, "__getattribute__")


def given_keys(value: object, location: Location = ()) -> Iterator[tuple[Location, tuple[int, str]]]:
    """Yield the optional keys that are written in a model, outer ones first; required ones are the schema's to ask for."""
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
    """Return where the spec at *path* says something that nothing reads, whatever the case.

    The file is read anew: what an earlier run remembers of its spec would hide that it is read.
    """
    spec = read_spec(path)[0]
    waiting = dict(given_keys(spec))
    with recorded() as found:
        for example in spec.examples:
            example_case(session.all_targets(spec)[0], example)
        for target, case in explicit_cases(session, spec):
            judge(Trial(target, case, session.engine))
            waiting = {place: read for place, read in waiting.items() if read not in found}
            if not waiting:
                break
    return [place for place in waiting if not any(place[:size] in waiting for size in range(len(place)))]
