"""Rotary position embeddings with operators of ONNX."""

from __future__ import annotations

import torch

from quantizer.core.dtypes import DType, integer
from quantizer.lang.lowering.emitter import Value
from quantizer.lang.lowering.lower import Call, lowers
from quantizer.lang.lowering.rounding import quotient, saturated


@lowers("Rope")
def rope(c: Call) -> Value:
    """Return (-x1, x0) * weight0 + (x0, x1) * weight1 for pairs of the last axis.

    Codes are shifted, rounded and saturated after each product and after the sum.
    """
    target = c.outputs[0].dtype
    kind = "int64" if target.is_integer else "float32"
    x, sines, cosines = (c.e.cast(c.value(i), kind) for i in range(3))
    turned, kept = c.e.op("Mul", _turned(c, x), sines), c.e.op("Mul", x, cosines)
    if not target.is_integer:
        return c.made(c.e.op("Add", turned, kept))
    # a product of two codes needs twice their bits
    middle = integer(2 * target.bits, signed=True)
    turned, kept = (c.e.cast(_shifted(c, v, step, middle), "int64") for v, step in ((turned, "mul1"), (kept, "mul2")))
    return _shifted(c, c.e.op("Add", turned, kept), "add", target)


def _turned(c: Call, x: Value) -> Value:
    """Return (-x1, x0) for each pair."""
    pairs = c.e.op("Reshape", x, [*x.shape[:-1], x.shape[-1] // 2, 2], allowzero=0)
    first, second = c.e.ops("Split", 2, pairs, axis=x.rank, num_outputs=2)
    return c.e.op("Reshape", c.e.op("Concat", c.e.op("Neg", second), first, axis=x.rank), [*x.shape], allowzero=0)


def _shifted(c: Call, v: Value, step: str, dtype: DType) -> Value:
    bits = torch.tensor(-int(c.attr(f"{step}_shift")))
    return saturated(c.e, quotient(c.e, v, bits, str(c.attr(f"{step}_round_mode"))), dtype)
