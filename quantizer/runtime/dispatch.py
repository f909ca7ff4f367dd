"""Finds the platform on which an operation runs, and the handler that runs it there.

A platform's own handlers apply only to that platform. Every other operation runs on the shared kernels, which cannot
be changed. Names are PPQ's (facts in its ppq.api).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from functools import cache
from typing import Any

from torch import Tensor

from quantizer.core.errors import GraphError, UnsupportedError
from quantizer.core.library import load_library
from quantizer.ir.graph import Graph, Node, nearest
from quantizer.runtime.executor import run_node
from quantizer.runtime.onnx import FAMILIES
from quantizer.runtime.onnx.kernels import KERNELS, Context, specs
from quantizer.runtime.onnx.ppq_only import find_ppq_kernel

Handler = Callable[..., Any]
FP32 = "fp32"
"""The platform of operations that stay float."""
DISPATCHED = "is_dispatched_graph"
OWN_PLATFORM = "platform"
_REGISTERED: dict[str, dict[str, Handler]] = {}
# importing the modules registers the kernels; the assertion keeps the import from being called unused
assert FAMILIES


@cache
def platforms() -> frozenset[str]:
    """Return the names of all platforms: those of the rooms, and fp32."""
    return frozenset({FP32, *load_library().platforms})


def _known(platform: str) -> str:
    if platform not in platforms():
        raise ValueError(
            f"platform {platform!r}: no such platform.{nearest(platform, platforms())} "
            f"Known: {', '.join(sorted(platforms()))}."
        )
    return platform


def register_operation_handler(handler: Handler, operation_type: str, platform: str) -> None:
    """Run operations of one type with `handler(op, values, ctx, **kwargs)` on one platform, and on no other."""
    _known(platform)
    if not callable(handler):
        raise TypeError(f"handler {handler!r} of {operation_type}: must be a function of (op, values, ctx, **kwargs).")
    _REGISTERED.setdefault(platform, {})[operation_type] = handler


@contextmanager
def operation_handlers() -> Iterator[None]:
    """At the end of the block, restore the handlers that it replaced or added."""
    before = {platform: dict(handlers) for platform, handlers in _REGISTERED.items()}
    try:
        yield
    finally:
        _REGISTERED.clear()
        _REGISTERED.update(before)


def find_handler(operation_type: str, platform: str) -> Handler | None:
    """Return the function of an operation type on a platform: handler, ONNX kernel, or registry operator."""
    own = _REGISTERED.get(platform, {}).get(operation_type)
    # a user's handler precedes the built-in kernel, on its platform only
    if own is not None:
        return own
    known = KERNELS.get(operation_type) or find_ppq_kernel(operation_type)
    if known is not None:
        return known
    return _registered_operator if operation_type in specs() else None


def _registered_operator(op: Node, values: list[Tensor | None], _ctx: Context, **_: Any) -> Tensor | list[Tensor]:
    """Run an operator of the registry on operands in its spec's order."""
    spec = specs()[op.op]
    operands = {name: value for name, value in zip(spec.inputs, values, strict=False) if value is not None}
    made = run_node(spec, op, operands).tensors
    return made[0] if len(made) == 1 else list(made)


def runs_on(platform: str) -> Callable[[str], bool]:
    """Return a function that says whether the operator of a given name runs on *platform*."""
    return lambda operation_type: find_handler(operation_type, platform) is not None


def refuse_unsupported(graph: Graph, platform: str = FP32) -> None:
    """Raise one UnsupportedError that names every operator of *graph* without a kernel on its platform."""
    missing = sorted({op for op in graph.operators if find_handler(op, platform) is None})
    if missing:
        raise UnsupportedError(
            f"graph {graph.name!r}: nothing runs {', '.join(missing)} on platform {platform!r}: "
            "register_operation_handler adds one."
        )


def platform_of(node: Node, default: str) -> str:
    """Return the platform that a node was dispatched to."""
    own = node.extra.get(OWN_PLATFORM, default)
    assert isinstance(own, str)
    return own


def assigned(graph: Graph, choice: Mapping[str, str], table: Mapping[str, str] | None = None) -> Graph:
    """Return *graph* with each node on the platform of *choice*, unless *table* names another for it."""
    table = table or {}
    for name, platform in table.items():
        graph.node(name)
        _known(platform)
    nodes = []
    for node in graph.nodes:
        platform = table.get(node.name, choice.get(node.name, FP32))
        if find_handler(node.op, platform) is None:
            raise GraphError(f"node {node.name!r}: nothing runs {node.op} on platform {platform!r}.")
        nodes.append(replace(node, extra={**node.extra, OWN_PLATFORM: platform}))
    return graph.with_(nodes=tuple(nodes), extra={**graph.extra, DISPATCHED: True})
