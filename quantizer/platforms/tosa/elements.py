"""Element-wise operators, reductions and functions of one input as TOSA operators with RESCALE around them."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
import tosa_serializer as ts
from torch import Tensor

from quantizer.core.errors import RefusedError
from quantizer.numerics.qparams import Parameters
from quantizer.platforms.tosa.graph import INT8, INT16, INT32, ONE, PROPAGATE, TosaGraph, Value, kind_of
from quantizer.platforms.tosa.products import rescaled
from quantizer.runtime.engines.protocol import Call

SUMS = {"add": ts.Op.ADD, "sub": ts.Op.SUB}
CHOICES = {"maximum": ts.Op.MAXIMUM, "minimum": ts.Op.MINIMUM}
MANTISSA_BITS = 31
SLOPE = 1 << 15
"""Neighbouring entries of an int16 table must differ by less than this."""
Codes = Mapping[str, Tensor]
Built = tuple[TosaGraph, Value]


def operand(graph: TosaGraph, codes: Codes, parameters: Parameters, name: str, rank: int) -> tuple[Value, int]:
    """Return an operand, with axes of one element before its own up to *rank*, and its zero point."""
    params, held = parameters.inputs[name], codes[name].numpy()
    value = graph.feed(held.reshape((1,) * (rank - held.ndim) + held.shape), kind_of(params), name)
    return value, int(params.zero_point)


def _multiplier(factor: float) -> tuple[list[int], list[int]]:
    """Return the multiplier and shift of a provided factor."""
    # factor = fraction * 2**exponent, fraction in [1/2, 1): 31 bits fill TOSA's multiplier
    fraction, exponent = math.frexp(factor)
    mantissa, shift = int(fraction * 2.0**MANTISSA_BITS), MANTISSA_BITS - exponent
    # RESCALE shifts by at most 62 places: a smaller factor loses low bits of its multiplier
    excess = max(0, shift - 62)
    return [mantissa >> excess], [shift - excess]


def _centred(graph: TosaGraph, value: Value, zero: int) -> Value:
    """Return int32 codes less their zero point."""
    return graph.rescale(value, INT32, *([number] for number in ONE), zeros=(zero, 0))


def to_output(graph: TosaGraph, value: Value, zero: int, parameters: Parameters, name: str) -> Value:
    """Rescale one operand to codes of the output."""
    ratio, output = parameters.rescale, parameters.outputs["y"]
    assert ratio is not None
    zeros = (zero, int(output.zero_point))
    return graph.rescale(value, kind_of(output), *_multiplier(ratio.factors[name]), zeros=zeros)


def element_wise(call: Call, codes: Codes, parameters: Parameters) -> Built:
    """Return a sum, difference, maximum or minimum of two operands, rescaled to a common int32 scale first."""
    graph, ratio, output = TosaGraph(), parameters.rescale, parameters.outputs["y"]
    assert ratio is not None
    op, rank = call.spec.op, max(codes["a"].dim(), codes["b"].dim())
    sides = [operand(graph, codes, parameters, name, rank) for name in ("a", "b")]
    values = [
        graph.rescale(value, INT32, *_multiplier(ratio.factors[name]), zeros=(zero, 0))
        for name, (value, zero) in zip(("a", "b"), sides, strict=True)
    ]
    shape = np.broadcast_shapes(*(value.shape for value in values))
    if op in SUMS:
        (made,) = rescaled(graph, [graph.op(SUMS[op], values, shape, INT32)], parameters)
    else:
        # the operands already have the scale of the output
        chosen = graph.op(CHOICES[op], values, shape, INT32, PROPAGATE)
        made = graph.rescale(chosen, kind_of(output), *([n] for n in ONE), zeros=(0, int(output.zero_point)))
    return graph, graph.activate(made, parameters)


def product(codes: Codes, parameters: Parameters) -> Built:
    """Return the product of centred int32 codes."""
    graph, rank = TosaGraph(), max(codes["a"].dim(), codes["b"].dim())
    values = [_centred(graph, *operand(graph, codes, parameters, name, rank)) for name in ("a", "b")]
    shape = np.broadcast_shapes(*(value.shape for value in values))
    # the third operand is MUL's shift
    return graph, graph.op(ts.Op.MUL, [*values, graph.const([0], INT8)], shape, INT32)


def elementwise_product(call: Call, codes: Codes, parameters: Parameters) -> Built:  # noqa: ARG001 - one shape for all
    """Return the product, rescaled to codes of the output."""
    graph, made = product(codes, parameters)
    return graph, graph.activate(rescaled(graph, [made], parameters)[0], parameters)


def summed(call: Call, codes: Codes, parameters: Parameters) -> Built:
    """Return sums of centred codes along each reduced axis."""
    attrs: Mapping[str, Any] = call.attrs
    graph, rank = TosaGraph(), codes["x"].dim()
    made = _centred(graph, *operand(graph, codes, parameters, "x", rank))
    # a global average has no attribute: it reduces rows and columns
    axes = tuple(attrs.get("axes", (2, 3)))
    for axis in axes:
        shape = [1 if place == axis else size for place, size in enumerate(made.shape)]
        made = graph.op(ts.Op.REDUCE_SUM, [made], shape, INT32, axis)
    if not attrs.get("keepdims", True):
        made = graph.reshape(made, [size for place, size in enumerate(made.shape) if place not in axes])
    return graph, made


def reduced(call: Call, codes: Codes, parameters: Parameters) -> Built:
    """Return sums or means: one RESCALE holds the scales and the number of terms."""
    graph, made = summed(call, codes, parameters)
    # the sums are of centred codes, so that their zero point is 0
    return graph, to_output(graph, made, 0, parameters, "x")


def rectified(call: Call, codes: Codes, parameters: Parameters) -> Built:
    """Return RESCALE, then CLAMP to the zero point, or to bounds that are provided as centred codes."""
    graph, output = TosaGraph(), parameters.outputs["y"]
    value, zero = operand(graph, codes, parameters, "x", codes["x"].dim())
    made, offset = to_output(graph, value, zero, parameters, "x"), int(output.zero_point)
    if call.spec.op == "relu":
        return graph, graph.clamp(made, max(offset, output.qmin), output.qmax)
    numbers = parameters.numbers
    return graph, graph.clamp(made, numbers["least"] + offset, numbers["most"] + offset)


def looked_up(call: Call, codes: Codes, parameters: Parameters) -> Built:  # noqa: ARG001 - one shape for all
    """Return TABLE: of 256 codes, or of 513 entries with 7 interpolated bits, which a RESCALE removes."""
    (table,) = parameters.tables.values()
    graph, output, entries = TosaGraph(), parameters.outputs["y"], table.entries.numpy()
    value, _ = operand(graph, codes, parameters, "x", codes["x"].dim())
    kind = kind_of(output)
    if value.kind == INT16 and int(np.abs(np.diff(entries)).max(initial=0)) >= SLOPE:
        raise RefusedError("TABLE of int16 holds slopes of 16 bits: two neighbouring entries are further apart")
    held = graph.const(entries, kind)
    if value.kind == INT8:
        return graph, graph.op(ts.Op.TABLE, [value, held], value.shape, kind)
    wide = graph.op(ts.Op.TABLE, [value, held], value.shape, INT32)
    # TABLE of int16 returns 7 interpolated bits below the code
    return graph, graph.rescale(wide, kind, [ONE[0]], [ONE[1] + (table.step.bit_length() - 1)])
