"""Control flow: operators whose bodies run once, never, or repeatedly."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from quantizer.core.errors import UnsupportedError
from quantizer.ir.graph import FREE, Graph, container
from quantizer.runtime.onnx.kernels import Context, axis_of, kernel, scalar, whole


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
    """Run a body while its condition holds, at most a given number of times.

    Its outputs other than the carried values are stacked.
    """
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
        # a body reads the iteration's number and the last condition, then the carried values
        feeds = dict(zip(graph.inputs, [torch.tensor(count), torch.tensor(going), *values], strict=True))
        verdict, *outputs = ctx.run_body(graph, feeds)
        going, values = bool(scalar(verdict, default=True)), outputs[: len(carried)]
        for rows, row in zip(stacked, outputs[len(carried) :], strict=True):
            rows.append(row)
        count += 1
    return values + [
        torch.stack(rows) if rows else _nothing("Loop", graph, name)
        for rows, name in zip(stacked, graph.outputs[1 + len(carried) :], strict=True)
    ]


def _nothing(op: str, graph: Graph, name: str) -> Tensor:
    """Return the empty stacks of a loop without iterations."""
    value = graph.tensor(name)
    if not value.ranked or FREE in value.shape:
        raise UnsupportedError(f"{op}: no iteration ran, and the shape of {name!r} is not declared.")
    return torch.zeros(0, *value.shape, dtype=container(value.dtype))


BATCHED_UNTIL = 9
"""Before this version, Scan runs each example of a batch separately, up to its own length."""


@kernel("Scan")
def scan(
    *operands: Tensor | None,
    body: str,
    num_scan_inputs: int,
    scan_input_axes: Sequence[int] = (),
    scan_input_directions: Sequence[int] = (),
    scan_output_axes: Sequence[int] = (),
    scan_output_directions: Sequence[int] = (),
    directions: Sequence[int] = (),
    ctx: Context,
    since: int,
) -> list[Tensor]:
    """Run a body once for each slice of the scanned operands.

    It takes and returns states and slices of results.

    A direction of 1 reads the slices in reverse order, or puts each result before the earlier ones.
    """
    graph = _body(ctx, body)
    # the first operand of Scan-8 holds the lengths
    given = operands[1:] if since < BATCHED_UNTIL else operands
    tensors = [value for value in given if value is not None]
    count = len(tensors) - num_scan_inputs
    made = len(graph.outputs) - count
    if len(tensors) != len(given) or num_scan_inputs < 1 or min(count, made) < 0 or len(graph.inputs) != len(tensors):
        raise UnsupportedError(
            f"Scan: {len(given)} operands, {num_scan_inputs} of them scanned, for a body with {len(graph.inputs)} "
            f"inputs and {len(graph.outputs)} outputs: must be states and slices, each once."
        )
    states, scanned = tensors[:count], tensors[count:]
    backwards = _each("directions", directions or scan_input_directions, num_scan_inputs)
    if since < BATCHED_UNTIL:
        return _each_example(ctx, graph, states, scanned, backwards, operands[0])
    axes = _each("scan_input_axes", scan_input_axes, num_scan_inputs)
    slices = [x.movedim(axis_of("Scan", axis, x.dim()), 0) for x, axis in zip(scanned, axes, strict=True)]
    states, results = _scanned(
        ctx, graph, states, [x.flip(0) if b else x for x, b in zip(slices, backwards, strict=True)]
    )
    ends = _each("scan_output_directions", scan_output_directions, made)
    places = _each("scan_output_axes", scan_output_axes, made)
    return states + [
        (x.flip(0) if back else x).movedim(0, axis_of("Scan", axis, x.dim()))
        for x, back, axis in zip(results, ends, places, strict=True)
    ]


def _each(name: str, given: Sequence[int], count: int) -> Sequence[int]:
    """Return one number for each tensor, 0 where the attribute is absent."""
    if given and len(given) != count:
        raise UnsupportedError(f"Scan: {name}={list(given)}: must be {count} numbers.")
    return given or [0] * count


def _scanned(
    ctx: Context, graph: Graph, states: Sequence[Tensor], slices: Sequence[Tensor]
) -> tuple[list[Tensor], list[Tensor]]:
    """Return the last states, and the results of all rounds one after the other along a new first axis."""
    assert ctx.run_body is not None
    rounds = {x.shape[0] for x in slices}
    if len(rounds) != 1:
        raise UnsupportedError(f"Scan: scanned operands of {sorted(rounds)} slices: must have one length.")
    values, rows = list(states), list[list[Tensor]]()
    for i in range(rounds.pop()):
        found = ctx.run_body(graph, dict(zip(graph.inputs, [*values, *(x[i] for x in slices)], strict=True)))
        values = found[: len(states)]
        rows.append(found[len(states) :])
    if not rows:
        return values, [_nothing("Scan", graph, name) for name in graph.outputs[len(states) :]]
    return values, [torch.stack(column) for column in zip(*rows, strict=True)]


def _each_example(
    ctx: Context,
    graph: Graph,
    states: Sequence[Tensor],
    scanned: Sequence[Tensor],
    backwards: Sequence[int],
    lengths: Tensor | None,
) -> list[Tensor]:
    """Return the results of Scan-8: batches along axis 0, slices along axis 1, padded with zeros to the longest."""
    if any(x.dim() < 2 for x in scanned) or len({x.shape[:2] for x in scanned}) != 1:
        raise UnsupportedError(
            f"Scan: operands {[list(x.shape) for x in scanned]}: must be [batch, length, ...], with the same two sizes."
        )
    batch, longest = scanned[0].shape[:2]
    rounds = [longest] * batch if lengths is None else whole(lengths)
    if not batch or len(rounds) != batch or not all(0 < length <= longest for length in rounds):
        raise UnsupportedError(f"Scan: sequence_lens={rounds} for {batch} examples: must lie in [1, {longest}].")
    columns = list[list[Tensor]]()
    for i, length in enumerate(rounds):
        slices = [x[i, :length] for x in scanned]
        slices = [x.flip(0) if back else x for x, back in zip(slices, backwards, strict=True)]
        last, results = _scanned(ctx, graph, [state[i] for state in states], slices)
        # examples that ended early are filled up to the longest
        columns.append(last + [torch.cat([x, x.new_zeros(longest - length, *x.shape[1:])]) for x in results])
    return [torch.stack(column) for column in zip(*columns, strict=True)]
