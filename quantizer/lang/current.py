"""The graph that operator functions add to, and the table of these functions."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from functools import wraps
from typing import Any, ParamSpec, TypeVar

from quantizer.lang.errors import LangError
from quantizer.lang.graph import CURRENT, Graph

P = ParamSpec("P")
R = TypeVar("R")
DEVICES = ("cpu", "bm1684x", "bm1688", "cv183x")


def init(device: str = "cpu", name: str = "main") -> Graph:
    """Start a new default graph for this thread and return it; *device* is one of DEVICES."""
    if device not in DEVICES:
        raise LangError(f"init: device={device!r}: must be one of {', '.join(DEVICES)}.")
    return reset_default_graph(Graph(name))


def deinit() -> None:
    """Leave this thread without a default graph."""
    CURRENT.set(())


def reset_default_graph(graph: Graph | None = None) -> Graph:
    """Make *graph*, or a new one, the default of this thread, and return it."""
    found = Graph() if graph is None else graph
    # the default graph is the first; those of `with` blocks stay
    CURRENT.set((found, *CURRENT.get()[1:]))
    return found


def get_default_graph() -> Graph:
    """Return the current graph of operator functions; LangError without one."""
    graphs = CURRENT.get()
    if not graphs:
        raise LangError("there is no graph: call init(device), or use `with Graph(name):`.")
    return graphs[-1]


@dataclass(frozen=True)
class Function:
    """An operator function of the language."""

    name: str
    group: str
    call: Callable[..., Any]


FUNCTIONS: dict[str, Function] = {}
"""Every operator function by name."""


def operator(group: str) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """Register the decorated function as an operator function of a group. A failing call changes nothing."""

    def register(function: Callable[P, R]) -> Callable[P, R]:
        signature = inspect.signature(function)

        @wraps(function)
        def call(*args: P.args, **kwargs: P.kwargs) -> R:
            graph = get_default_graph()
            # undoes everything that the call did to the graph, if it fails
            with graph.calling(function.__name__):
                try:
                    # before the call, so that a TypeError inside the function is not taken for a wrong call
                    signature.bind(*args, **kwargs)
                except TypeError as err:
                    raise LangError(f"{err}: write {function.__name__}{signature}.") from None
                return function(*args, **kwargs)

        FUNCTIONS[function.__name__] = Function(function.__name__, group, call)
        return call

    return register
