"""Items of graphs of a few nodes: one for each platform. Torch and ONNX are loaded only when an item runs."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

import pytest

from quantizer.conformance.run.collection import ItemRunner, ItemState
from quantizer.conformance.run.facts import shown
from quantizer.conformance.setup.options import Options
from quantizer.core.errors import UnsupportedError
from quantizer.core.facts import SpecFacts
from quantizer.core.graph_spec import GraphSpec, load_graph_spec, shipped_graphs_folder
from quantizer.core.record import Record
from quantizer.core.rooms import WHOLE_MODELS, graph_platform
from quantizer.core.verdict import Verdict
from quantizer.core.yaml_source import YAML

if TYPE_CHECKING:
    from quantizer.conformance.fusion.systems import System

_NUMBERS = re.compile(r" (?:scale|zero point) \S+?(?=[ ;]|$)")
KIND = "fusion"
CASES = 8
"""Cases of each form of a graph: every way to choose scales, except one scale for all, which our tests have."""


@dataclass(kw_only=True)
class GraphState(ItemState):
    """The data of one item of a graph."""

    spec: GraphSpec

    @property
    def op(self) -> str:
        """The graph."""
        return self.spec.graph

    @cached_property
    def runner(self) -> GraphRunner:
        """The object that runs the item."""
        return GraphRunner(self)


def collect_graph(path: Path, node_id: str, options: Options) -> Iterator[GraphState]:
    """Yield the states of one graph's items in a stable order; SpecError for a file that cannot be read."""
    spec = load_graph_spec(path)
    # weights and activations of 8 bits: no other scheme is in these graphs
    if options.schemes:
        return
    facts = SpecFacts(
        version="",
        path=shown(path, options.root),
        sha256=hashlib.sha256(YAML.bytes_of(path)).hexdigest(),
        lines={},
        shipped=not path.resolve().is_relative_to(options.root.resolve())
        and path.resolve().is_relative_to(shipped_graphs_folder().resolve()),
    )
    for platform in _platforms(options):
        name = f"{spec.graph}-{KIND}-{platform}"
        yield GraphState(
            spec=spec,
            name=name,
            kind=KIND,
            platform=platform,
            node_id=f"{node_id}::{name}",
            options=options,
            facts=facts,
            level=options.levels[0],
        )


def _platforms(options: Options) -> tuple[str, ...]:
    """Return the platforms whose items are collected: those that were named, or those that an engine computes."""
    real = options.real
    if real is None:
        return options.platforms or (graph_platform(),)
    homes = [name for name in real.entry.variant_of_platform if options.selects("", name)]
    if real.entry.models or (real.entry.form == WHOLE_MODELS and not real.given):
        # it runs whole models as they are, so all of its platforms are one
        return tuple(homes[:1])
    joins = not real.given and hasattr(import_module(real.lowering), "join")
    return tuple(homes) if joins else ()


class GraphRunner(ItemRunner):
    """Judges the cases of a graph on one platform."""

    def __init__(self, state: GraphState) -> None:
        from quantizer.conformance.judging.recorder import Recorder

        self._state = state
        self.changes: list[str] = []
        self.left_out: str | None = None
        real = state.options.real
        engine = "builtin" if real is None else f"{real.identity(state.platform)} {real.version}"
        empty = Record(state.name, state.op, KIND, "skipped", platform=state.platform, engine=engine, isa=state.level)
        self._recorder = Recorder(empty)
        self._failure = ""

    def record(self, outcome: str, failure: str = "") -> Record:
        """Return the item's record with pytest's outcome. *failure*: the reason, if the item failed."""
        return self._recorder.record(outcome, failure=self._failure or failure)

    def replaced(self) -> list[str]:
        """Return nothing: an item of an operator says which of its functions a plugin replaces."""
        return []

    def once(self) -> None:
        """Judge each case; the first that fails ends the item, with the smallest case that fails in the same way."""
        system = self._system()
        from quantizer.conformance.fusion.cases import cases
        from quantizer.conformance.fusion.judging import explained

        state, undecided = self._state, dict[str, None]()
        for case in cases(state.spec, CASES):
            found = system.judge(state.spec, case, state.platform)
            verdicts = [_recorded(item.verdict) for item in found]
            self._recorder.count(verdicts)
            undecided |= dict.fromkeys(v.reason if v.status == "inconclusive" else "" for v in verdicts)
            if wrong := next((item for item in found if item.verdict.failing), None):
                self._failure = f"{wrong} [{case}]"
                text = explained(state.spec, case, state.platform, wrong, system.judge)
                pytest.fail(f"{text}\n  run again: {state.rerun}", pytrace=False)
        if "" not in undecided:
            self._leave_out(next(iter(undecided)))

    def _leave_out(self, reason: str) -> NoReturn:
        """End the item as one that compares nothing here."""
        self.left_out = reason
        self._recorder.miss(reason)
        pytest.skip(reason)

    def _system(self) -> System:
        """Return what is judged; leave the item out if it, or onnx, is not installed."""
        options = self._state.options
        try:
            from quantizer.conformance.fusion.systems import built_in, system

            if options.real is not None and options.real.missing:
                raise UnsupportedError(options.real.missing)
            return (
                built_in((self._state.platform,)) if options.real is None else system(options.engine, self._state.level)
            )
        except (UnsupportedError, ModuleNotFoundError) as err:
            self._leave_out(str(err))


def _recorded(verdict: Verdict) -> Verdict:
    """Return a verdict without calibrated numbers: each case has its own, and would give a reason of its own."""
    return replace(verdict, ratio=verdict.ratio if verdict.failing else 0.0, reason=_NUMBERS.sub("", verdict.reason))
