"""Control flow: bodies that run once, never, or again and again."""

from __future__ import annotations

import torch
from torch import Tensor

from quantizer.core.errors import UnsupportedError
from quantizer.ir.graph import FREE, Graph, container
from quantizer.runtime.onnx.kernels import Context, kernel, scalar


def _body(ctx: Context, name: str) -> Graph:
    return ctx.graph.subgraphs[name]


@kernel("If")
def if_(condition: Tensor, *, then_branch: str, else_branch: str, ctx: Context) -> list[Tensor]:
    """Run one of two bodies."""
    assert ctx.run_body is not None
    return ctx.run_body(_body(ctx, then_branch if scalar(condition, None) else else_branch), {})


@kernel("Loop")
def loop(
    trips: Tensor | None = None, condition: Tensor | None = None, *carried: Tensor, body: str, ctx: Context
) -> list[Tensor]:
    """Run a body while its condition holds, at most so many times; what it puts out beside the carried is stacked."""
    assert ctx.run_body is not None
    graph = _body(ctx, body)
    limit, going = scalar(trips, None), bool(scalar(condition, default=True))
    if len(graph.inputs) != len(carried) + 2:
        raise UnsupportedError(
            f"Loop: {len(carried)} values for a body with {len(graph.inputs)} inputs: must be two less."
        )
    values: list[Tensor] = list(carried)
    stacked: list[list[Tensor]] = [[] for _ in graph.outputs[1 + len(carried) :]]
    count = 0
    while going and (limit is None or count < limit):
        feeds = dict(zip(graph.inputs, [torch.tensor(count), torch.tensor(going), *values], strict=True))
        verdict, *outputs = ctx.run_body(graph, feeds)
        going, values = bool(scalar(verdict, default=True)), outputs[: len(carried)]
        for rows, row in zip(stacked, outputs[len(carried) :], strict=True):
            rows.append(row)
        count += 1
    return values + [
        torch.stack(rows) if rows else _nothing(graph, name)
        for rows, name in zip(stacked, graph.outputs[1 + len(carried) :], strict=True)
    ]


def _nothing(graph: Graph, name: str) -> Tensor:
    """Return what a loop of no rounds has stacked."""
    value = graph.tensor(name)
    if not value.ranked or FREE in value.shape:
        raise UnsupportedError(f"Loop: no round ran, and the shape of {name!r} is not declared.")
    return torch.zeros(0, *value.shape, dtype=container(value.dtype))
