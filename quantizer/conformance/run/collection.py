"""Makes pytest items from a spec file. It does not load torch, and loads Hypothesis only for profiles that use it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

import pytest

from quantizer.conformance.run.facts import spec_facts
from quantizer.conformance.setup.options import Options
from quantizer.conformance.setup.profiles import PROFILES
from quantizer.conformance.stored.regressions import has_regressions
from quantizer.core.facts import SpecFacts
from quantizer.core.library import Library, spec_once
from quantizer.core.record import Record
from quantizer.core.spec import Spec
from quantizer.core.yaml_source import YAML

if TYPE_CHECKING:
    from quantizer.conformance.run.items import Runner
    from quantizer.conformance.setup.session import Session

KINDS = ("spec", "golden", "reject", "regressions")
ENGINE_KINDS = ("golden", "regressions")
"""Kinds of items that a real engine runs too. Specs and constraints do not depend on the engine."""


class ItemRunner(Protocol):
    """Runs one item and makes its record."""

    changes: list[str]
    """What an update changed in the goldens."""
    left_out: str | None
    """Why the item does not run, if the engine or a declaration says so."""

    def once(self) -> None:
        """Run an item that has no generated cases of one operator."""

    def record(self, outcome: str, failure: str = "") -> Record:
        """Return the item's record with pytest's outcome."""

    def replaced(self) -> list[str]:
        """Return which built-in functions of the operator a plugin replaces."""


@dataclass(kw_only=True)
class ItemState(ABC):
    """The data of one item. Its runner needs torch, so it is created only when the item runs."""

    name: str
    kind: str
    scheme: str = ""
    platform: str = ""
    node_id: str
    options: Options
    facts: SpecFacts
    level: str = ""
    """The instruction level of a real engine. In a run of several levels, the item's name ends with it, except for the
    first level."""

    @property
    @abstractmethod
    def op(self) -> str:
        """The operator, or the graph."""

    @property
    @abstractmethod
    def runner(self) -> ItemRunner:
        """The object that runs the item; made when it is first asked for."""

    @property
    def _has_run(self) -> bool:
        # a runner that was never asked for would open a session now
        return "runner" in self.__dict__

    @property
    def selection(self) -> str:
        """The arguments with which pytest runs only this item, at one level.

        An item outside the root is selected by name, because its path would change pytest's root.
        """
        if self.node_id.startswith("../"):
            return f"-k {self.node_id.rpartition('::')[2]} --op-shipped={self.op}"
        return f"'{self.node_id}'"

    def replaced(self) -> list[str]:
        """Return which built-in functions of the item's operator a plugin replaces."""
        return self.runner.replaced() if self._has_run else []

    def changes(self) -> list[str]:
        """Return the changes that an update made in the goldens of the item's operator."""
        return self.runner.changes if self._has_run else []

    @property
    def rerun(self) -> str:
        """The command that runs the item again."""
        return f"pytest {self.selection}{self.options.naming(self.platform)}{self.options.arguments}"

    def record(self, outcome: str, failure: str = "") -> Record:
        """Return the item's record with pytest's outcome. *failure*: the reason, if the item failed."""
        if not self._has_run:
            return Record(
                self.name, self.op, self.kind, outcome, scheme=self.scheme, platform=self.platform, failure=failure
            )
        return self.runner.record(outcome, failure)

    @property
    def left_out(self) -> str | None:
        """Why the engine or a declaration leaves the item out. A function under test cannot leave it out."""
        return self.runner.left_out if self._has_run else None

    def ended(self, record: Record) -> tuple[str, str] | None:
        """Return outcome and reason of an item that pytest wrongly counts as passed; None for other items.

        Either a check failed, or nothing was compared. The latter is not a failure if a selection, refusals of the
        engine or a declaration explain it.
        """
        checks = record.checks.values()
        if any(check.failed for check in checks):
            return "failed", "a check failed, and nothing made the item fail"
        if any(check.passed for check in checks):
            return None
        # there were verdicts, only none that compares: their reasons are in the record
        beside = any(check.inconclusive or check.defects or check.overflow for check in checks)
        if beside or self.options.narrowings or self.kind == "regressions":
            return "skipped", "compared nothing under the requested options"
        return "failed", "compared nothing"


@dataclass(kw_only=True)
class State(ItemState):
    """The data of one item of an operator."""

    spec: Spec
    session: Callable[[], Session]

    @property
    def op(self) -> str:
        """The operator."""
        return self.spec.op

    @cached_property
    def runner(self) -> Runner:
        """The object that runs the item and judges its cases."""
        from quantizer.conformance.run.items import Runner

        return Runner(self)


def collect(
    path: Path, node_id: str, options: Options, session: Callable[[], Session], extra: list[Path]
) -> Iterator[State]:
    """Yield the states of one spec file's items in a stable order; SpecError for a file that cannot be read.

    extra: spec files met so far that are not shipped; this one is added where it is new.
    """
    library, op = meet(path, options, extra)
    spec = library.spec(op)
    facts = spec_facts(path, library.paths[op], options, spec, library.positions[op])
    yield from _states(spec, library, node_id, options, session, facts)


def meet(path: Path, options: Options, extra: list[Path]) -> tuple[Library, str]:
    """Return the library with one more spec file and the file's operator; a file that is new is added to *extra*."""
    library = options.met(extra)
    op = spec_once(path.resolve())[0].op
    if not _is_known(path, library.paths.get(op)):
        extra.append(path)
        library = options.met(extra)
    return library, op


def _is_known(path: Path, known: Path | None) -> bool:
    """Return whether *path* is a spec that the library has, or a copy of it (an installed plugin's own source)."""
    return known is not None and (path.resolve() == known.resolve() or YAML.bytes_of(path) == YAML.bytes_of(known))


def _states(
    spec: Spec, library: Library, node_id: str, options: Options, session: Callable[[], Session], facts: SpecFacts
) -> Iterator[State]:
    def states(kind: str, suffix: str, scheme: str = "", platform: str = "") -> Iterator[State]:
        # the node id has the plain name, with which one level alone can be requested
        plain = f"{spec.op}-{suffix}"
        for level in options.levels:
            name = plain if level == options.levels[0] else f"{plain}-{level}"
            place, asked = f"{node_id}::{plain}", options.at(level)
            yield State(
                spec=spec,
                name=name,
                kind=kind,
                scheme=scheme,
                platform=platform,
                node_id=place,
                options=asked,
                session=session,
                facts=facts,
                level=level,
            )

    selected = [
        (scheme, platform.platform)
        for platform in library.platforms.values()
        for scheme in library.schemes_for(spec, platform)
        if options.selects(scheme, platform.platform)
    ]
    for scheme, platform in selected:
        yield from states("cases", f"{scheme}-{platform}", scheme, platform)
    # An item without anything to compare is not collected, since it would pass without a verdict.
    compares = {
        "spec": True,
        # a platform that encloses others allows several codes, so no code of it is stored
        "golden": any(library.platforms[platform].enclosing is None for _, platform in selected),
        "reject": bool(spec.constraints),
        "regressions": has_regressions(options, library, spec.op),
    }
    for kind in KINDS if options.real is None else ENGINE_KINDS:
        if compares[kind]:
            yield from states(kind, kind)


def function(state: ItemState) -> Callable[..., None]:
    """Return the test function of an item: a Hypothesis test for cases that it draws, a plain one otherwise."""
    profile = PROFILES[state.options.profile]

    def once() -> None:
        state.runner.once()

    if not isinstance(state, State) or state.kind != "cases":
        return once
    if profile.drawn:
        from quantizer.conformance.run.hypothesis_cases import drawn_test

        return drawn_test(state, profile)

    def test() -> None:
        state.runner.rows()
        state.runner.seeded(profile.examples)

    return test


class OperatorItem(pytest.Function):
    """An item that is reported under its own name, at the first line of its spec."""

    state: ItemState

    def setup(self) -> None:
        """Make the test only now: Hypothesis reads its source, which 1,600 items would wait for at collection."""
        self.obj = function(self.state)
        super().setup()

    def reportinfo(self) -> tuple[Path, int, str]:
        """Return file, line and the name that headings show."""
        return self.path, 0, self.name


def _made_at_setup() -> None:
    """Placeholder of the test function until the item runs."""


def item(parent: pytest.Collector, state: ItemState) -> OperatorItem:
    """Return the pytest item of *state*, with its markers."""
    made: OperatorItem = OperatorItem.from_parent(parent, name=state.name, callobj=_made_at_setup)
    made.state = state
    made.add_marker(pytest.mark.op(name=state.op))
    if state.kind == "cases" and PROFILES[state.options.profile].drawn:
        made.add_marker("hypothesis")  # Hypothesis marks its own tests at collection
    if state.scheme:
        made.add_marker(pytest.mark.scheme(name=state.scheme))
    if state.platform:
        made.add_marker(pytest.mark.platform(name=state.platform))
    return made
