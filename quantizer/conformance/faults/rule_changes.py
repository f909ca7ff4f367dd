"""Small changes to the decisions of a quantize rule: ranges and their estimators, signs, zero points, tables."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from quantizer.conformance.faults.fault import Wrap
from quantizer.core.case import Range
from quantizer.core.dtypes import integer
from quantizer.numerics.qparams import Parameters, QParams, Staged, Table
from quantizer.numerics.request import Request
from quantizer.ops.registry import Function

Ranges = Mapping[str, Range]


def asked(change: Callable[[Request], Request]) -> Wrap:
    """Make the quantize rule see a changed request, while the parameters that it provides name the true platform."""

    def wrap(original: Function) -> Function:
        def faulty(request: Request) -> Parameters:
            found: Parameters = original(change(request))
            return replace(found, platform=request.platform)

        return faulty

    return wrap


def ranges(change: Callable[[str, Range, Request], Range]) -> Wrap:
    """Change every calibrated range."""
    return asked(lambda q: replace(q, ranges={name: change(name, pair, q) for name, pair in q.ranges.items()}))


def percentile(name: str, pair: Range, request: Request) -> Range:
    """Estimate a range by the second smallest and the second largest value."""
    values = request.samples.get(name)
    # with fewer values, the second smallest and the second largest are not an estimate
    if values is None or values.numel() < 4:
        return pair
    # 0 stays in the range, as every calibration keeps it
    ordered = values.flatten().sort().values
    return min(float(ordered[1]), 0.0), max(float(ordered[-2]), 0.0)


def extrema_of_sample(name: str, pair: Range, request: Request) -> Range:
    """Estimate a range again from the extrema of the current run."""
    values = request.samples.get(name)
    if values is None or not values.numel():
        return pair
    return min(float(values.min()), 0.0), max(float(values.max()), 0.0)


def mean_of_batches(name: str, pair: Range, request: Request) -> Range:
    """Estimate a range by the mean of the ends of each row of a batch."""
    values = request.samples.get(name)
    if values is None or values.dim() < 2 or len(values) < 2 or not values.numel():
        return pair
    rows = values.flatten(1)
    return min(float(rows.amin(1).mean()), 0.0), max(float(rows.amax(1).mean()), 0.0)


def of_magnitude(name: str, pair: Range, request: Request) -> Range:  # noqa: ARG001 - required by the common signature
    """Make a range symmetric."""
    largest = max(abs(pair[0]), abs(pair[1]))
    return -largest, largest


def in_float16(name: str, pair: Range, request: Request) -> Range:  # noqa: ARG001
    """Keep the ends of a range in float16."""
    low, high = (float(torch.tensor(end, dtype=torch.float16)) for end in pair)
    # a range that float16 does not hold stays unchanged, as no tool would store it
    return (low, high) if low < high and max(-low, high) < float("inf") else pair


def not_widened(original: Function) -> Function:
    """Take ranges as they were calibrated, without 0."""

    def faulty(request: Request) -> Parameters:
        found: Parameters = original(request)
        inputs = {n: _shrunk(p, request.ranges[n]) if n in request.ranges else p for n, p in found.inputs.items()}
        outputs = {n: _shrunk(p, request.ranges[n]) if n in request.ranges else p for n, p in found.outputs.items()}
        return replace(found, inputs=inputs, outputs=outputs)

    return faulty


def _shrunk(params: QParams, pair: Range) -> QParams:
    """Return *params*; if the range does not contain 0, with the scale of the range before it was widened to 0."""
    low, high = pair
    if low <= 0.0 <= high or params.scale.dim():
        return params
    # width of the range over its width after widening
    share = (high - low) / max(high, -low)
    steps = None if params.steps is None else params.steps / share
    return replace(params, scale=params.scale * share, steps=steps)


def zero_point_unclamped(original: Function) -> Function:
    """Provide the zero point of a range without clamping: it may be one code beyond the end."""

    def faulty(request: Request) -> Parameters:
        found: Parameters = original(request)
        return replace(
            found,
            inputs={n: _unclamped(p, request.ranges.get(n)) for n, p in found.inputs.items()},
            outputs={n: _unclamped(p, request.ranges.get(n)) for n, p in found.outputs.items()},
        )

    return faulty


def _unclamped(params: QParams, pair: Range | None) -> QParams:
    if pair is None or params.scale.dim() or params.qmin == -params.qmax:
        return params
    low = min(pair[0], 0.0)
    zero = params.qmin - torch.round(torch.tensor(low, dtype=torch.float64) / params.scale).long()
    # only a zero point near an end can have been clamped; others keep their own rounding
    ended = int(params.zero_point) in (params.qmin, params.qmax, params.qmin + 1)
    return replace(params, zero_point=zero) if ended else params


def other_sign(params: QParams) -> QParams:
    """Give codes the other sign: their numbers move by half their range, and the zero point with them."""
    signed, half = params.dtype.kind == "int", 1 << (params.dtype.bits - 1)
    # -128..127 becomes 0..255 and back: code - zero_point stays the same
    move = half if signed else -half
    dtype = integer(params.dtype.bits, signed=not signed)
    return replace(
        params, dtype=dtype, qmin=params.qmin + move, qmax=params.qmax + move, zero_point=params.zero_point + move
    )


def quantizer(**changes: Any) -> Wrap:
    """Make the rule quantize constants in another way."""
    return asked(
        lambda q: replace(
            q, platform=q.platform.model_copy(update={"quantizer": q.platform.quantizer.model_copy(update=changes)})
        )
    )


def weights(**changes: Any) -> Wrap:
    """Make the quantize rule follow a scheme whose weights differ in some fields."""
    return asked(lambda q: replace(q, scheme=with_weights(q, changes)))


def with_weights(request: Request, changes: Mapping[str, Any]) -> Any:
    """Return the scheme of *request* with a changed weight part."""
    part = request.scheme.weight
    return (
        request.scheme
        if part is None
        else request.scheme.model_copy(update={"weight": part.model_copy(update=changes)})
    )


def other_weight_range(original: Function) -> Function:
    """Use the full codes for weights where the scheme restricts them, and the other way round."""

    def faulty(request: Request) -> Parameters:
        part = request.scheme.weight
        span = "full" if part is None or part.range == "restricted" else "restricted"
        found: Parameters = original(replace(request, scheme=with_weights(request, {"range": span})))
        return found

    return faulty


def half_cell_late(table: Table) -> Table:
    """Move each entry half a cell towards its neighbour, as in a table over the middles of cells."""
    # the last entry has no neighbour and repeats itself
    after = torch.cat([table.entries[1:], table.entries[-1:]])
    return replace(table, entries=(table.entries + after) >> 1)


def coarser_table(table: Table) -> Table:
    """Keep every second entry, twice."""
    entries = table.entries.clone()
    entries[1::2] = entries[: entries.numel() // 2 * 2 : 2]
    return replace(table, entries=entries)


def few_bits(table: Table) -> Table:
    """Clear the lowest bit of every entry."""
    return replace(table, entries=table.entries >> 1 << 1)


def other_interpolation(table: Table) -> Table:
    """Round between entries where the platform floors, and the other way round."""
    return replace(table, interpolation="down" if table.interpolation == "half_up" else "half_up")


def not_interpolated(original: Function) -> Function:
    """Read the entry before a code between two."""

    def faulty(*, x: Tensor, parameters: Parameters, **named: Any) -> Tensor | Staged:
        steps = [table.step for name, table in parameters.tables.items() if name == "lut" and table.step > 1]
        first = [parameters.tables["lut"].first for _ in steps]
        moved = (x - first[0]) // steps[0] * steps[0] + first[0] if steps else x
        result: Tensor | Staged = original(x=moved, parameters=parameters, **named)
        return result

    return faulty


def last_cell_extrapolated(original: Function) -> Function:
    """Follow the last slope in the last cell of an interpolated table instead of repeating the last entry."""

    def faulty(*, x: Tensor, parameters: Parameters, **named: Any) -> Tensor | Staged:
        result: Tensor | Staged = original(x=x, parameters=parameters, **named)
        table = parameters.tables.get("lut")
        if table is None or table.step <= 1 or isinstance(result, Staged):
            return result
        # steps of tables are powers of two: place >> shift is the entry, the lower bits are the place between two
        shift, output = table.step.bit_length() - 1, parameters.outputs["y"]
        place = (x - table.first).clamp(0, table.entries.numel() * table.step - 1)
        beyond = (table.entries[-1] - table.entries[-2]) * (place & (table.step - 1)) >> shift
        codes = torch.where(place >> shift == table.entries.numel() - 1, result + beyond, result)
        return codes.clamp(output.qmin, output.qmax)

    return faulty
