"""The systems that can run a graph of a few nodes, the platforms that they compute, and how each is judged there."""

from __future__ import annotations

import functools
from dataclasses import dataclass

from quantizer.conformance.fusion.cases import GraphCase
from quantizer.conformance.fusion.joined import judge_joined_graph
from quantizer.conformance.fusion.judging import Judge, Judged, home, judge_graph
from quantizer.core.errors import UnsupportedError
from quantizer.core.graph_spec import GraphSpec
from quantizer.core.levels import HOST
from quantizer.core.wording import unknown
from quantizer.runtime.engines.catalogue import chosen
from quantizer.runtime.engines.external import ExternalEngine
from quantizer.runtime.models.engines import OPTIMIZED, Session, model_engine, real_engines


@dataclass(frozen=True)
class System:
    """How a graph is judged: on which platforms, and the comparisons of one case on one of them."""

    platforms: tuple[str, ...]
    judge: Judge
    alone: bool = False
    """Whether no other platform can be judged: the system is compared with itself, not with our functions."""


def built_in(platforms: tuple[str, ...]) -> System:
    """Return the built-in functions alone, which compute every platform."""
    return System(platforms, judge_graph)


@functools.cache
def system(name: str, level: str = HOST) -> System:
    """Return the real system *name*, once a process; UnsupportedError if it runs no graph of several nodes.

    A system that runs ONNX models is judged without and with its optimizations. Of another one, a model of all nodes is
    compared with a model for each.

    *level*: the instructions to which a system is limited whose models are written operator by operator.
    """
    known = real_engines()
    if name in known:
        return _of_models(name, home(known[name]))
    found = chosen(name, option="--engine")
    engine = None if found is None else ExternalEngine(found, level)
    if found is None or engine is None or not engine.joins:
        raise UnsupportedError(f"--engine={name}: {unknown(name, known, 'engine of models')}")
    homes = found.entry.variant_of_platform
    platforms = tuple(p for p, variant in homes.items() if found.variant in (None, variant))

    def judge(spec: GraphSpec, case: GraphCase, platform: str) -> list[Judged]:
        return judge_joined_graph(spec, case, platform, engine)

    return System(platforms, judge, alone=True)


def _of_models(name: str, platform: str) -> System:
    plain, optimized = (model_engine(one, platform) for one in (name, f"{name}:{OPTIMIZED}"))
    assert isinstance(plain, Session)
    assert isinstance(optimized, Session)

    def judge(spec: GraphSpec, case: GraphCase, place: str) -> list[Judged]:
        # on other platforms than its own, only our functions are compared
        return judge_graph(spec, case, place, *((plain, optimized) if place == platform else (None, None)))

    return System((platform,), judge)
