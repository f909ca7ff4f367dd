"""Two operands element by element: real numbers through their scales, plain integers exactly."""

from __future__ import annotations

import torch

from quantizer.lang.lowering.emitter import Value
from quantizer.lang.lowering.lower import Call, lowers
from quantizer.lang.lowering.rounding import as_codes, quotient, rescaled, saturated, wrapped
from quantizer.numerics.qparams import QParams

BYTE = 8
WIDER = 20
"""The number of bits by which a sum widens its operands."""
ARITHMETIC = {"Add": "Add", "Sub": "Sub", "Mul": "Mul", "Div": "Div", "Max": "Max", "Min": "Min"}
COMPARED = {
    "Greater": "Greater",
    "Less": "Less",
    "GreaterOrEqual": "GreaterOrEqual",
    "LessOrEqual": "LessOrEqual",
    "Equal": "Equal",
    "NotEqual": "Equal",
}


def _plain(c: Call) -> bool:
    """Return whether all are integers without parameters, which are computed exactly."""
    tensors = [*(t for t in c.tensors if t is not None), *c.outputs]
    return all(t.dtype.is_integer and t.qparams is None for t in tensors)


def _operate(c: Call, op: str, a: Value, b: Value | float, *, reverse: bool = False) -> Value:
    """Return op(a, b), or op(b, a), in the type of *a*; a number *b* takes this type."""
    other = (
        c.e.constant(torch.tensor(b).to(torch.int64 if a.dtype.is_integer else torch.float32))
        if not isinstance(b, Value)
        else b
    )
    other = c.e.cast(other, a.dtype)
    return c.e.op(op, other, a) if reverse else c.e.op(op, a, other)


@lowers("Add", "Sub", "Mul", "Div", "Max", "Min")
def binary(c: Call) -> Value:
    """Compute with numpy's broadcasting; several operands are combined from left to right."""
    op = ARITHMETIC[c.node.op.removeprefix("top.")]
    if _plain(c):
        # int64 holds the sum and the product of any two 32-bit integers, so only the end saturates
        y = c.e.cast(c.value(), "int64")
        for i in range(1, len(c.values)):
            y = _operate(c, op, y, c.value(i))
        return saturated(c.e, y, c.outputs[0].dtype)
    if op in ("Add", "Sub", "Mul") and _on_grids(c):
        return _product(c) if op == "Mul" else _sum(c, op)
    y = c.real()
    for i in range(1, len(c.values)):
        y = _operate(c, op, y, c.real(i))
    return c.made(c.activated(y) if op not in ("Max", "Min") else y)


def _on_grids(c: Call) -> bool:
    """Return whether both operands and the result are codes with one scale each."""
    params = [*(c.params(i) for i in range(len(c.values))), c.outputs[0].qparams]
    plain = all(p is not None and p.scale.dim() == 0 and p.dtype.bits == BYTE for p in params)
    return plain and len(params) == 3 and not c.attr("do_relu")


def _scales(c: Call) -> tuple[QParams, float, float]:
    """Return the result's parameters and the scales of both operands."""
    left, right, out = c.params(0), c.params(1), c.outputs[0].qparams
    assert left is not None
    assert right is not None
    assert out is not None
    return out, float(left.scale), float(right.scale)


def _product(c: Call) -> Value:
    """Return the product of centred codes, requantized by the ratio of the scales."""
    out, a, b = _scales(c)
    ratio = torch.tensor(a * b, dtype=torch.float64) / out.scale
    return as_codes(c.e, c.e.op("Mul", c.centred(), c.centred(1)), ratio, out)


def _sum(c: Call, op: str) -> Value:
    """Return TensorFlow Lite's sum of codes.

    Centred codes are made 20 bits wider, rescaled to twice the larger scale, added, and requantized.
    """
    out, a, b = _scales(c)
    # twice the larger scale: each rescaled term is at most half of its width, so that the sum cannot overflow
    twice, wide = 2.0 * max(a, b), 1 << WIDER
    terms = [
        rescaled(c.e, c.e.op("Mul", c.centred(i), wide), torch.tensor(scale / twice, dtype=torch.float64))
        for i, scale in enumerate((a, b))
    ]
    return as_codes(c.e, c.e.op(op, *terms), torch.tensor(twice / wide, dtype=torch.float64) / out.scale, out)


@lowers("AddConst", "SubConst", "MulConst", "MaxConst", "MinConst")
def with_number(c: Call) -> Value:
    """Combine with one number; `is_reverse` puts the number first."""
    op = ARITHMETIC[c.node.op.removeprefix("top.").removesuffix("Const")]
    number, reverse = c.attr("const_val"), op == "Sub" and c.attr("is_reverse")
    if _plain(c) and number == int(number):
        y = _operate(c, op, c.e.cast(c.value(), "int64"), int(number), reverse=reverse)
        return saturated(c.e, y, c.outputs[0].dtype)
    y = _operate(c, op, c.real(), number, reverse=reverse)
    return c.made(c.activated(y) if op not in ("Max", "Min") else y)


@lowers("BinaryShift", "BinaryConstShift")
def shifted(c: Call) -> Value:
    """Compute a op b in int64, shift right by -shift with rounding, then saturate or wrap."""
    a = c.e.cast(c.value(), "int64")
    b: Value | float = c.e.cast(c.value(1), "int64") if c.has(1) else int(c.attr("scale"))
    y = _operate(c, c.attr("mode"), a, b, reverse=c.attr("is_reverse"))
    # Top's shift is to the left where it is positive, that of `quotient` to the right
    y = quotient(c.e, y, torch.tensor(-c.attr("shift"), dtype=torch.int64), c.attr("round_mode"))
    return (saturated if c.attr("saturation") else wrapped)(c.e, y, c.outputs[0].dtype)


@lowers("Compare", "CompareConst")
def compare(c: Call) -> Value:
    """Return 1 where the comparison holds, else 0, as real numbers of the result."""
    mode = c.attr("mode")
    reverse = not c.has(1) and c.attr("inversed")
    holds = _operate(c, COMPARED[mode], c.real(), c.real(1) if c.has(1) else c.attr("const_val"), reverse=reverse)
    return c.made(c.e.cast(c.e.op("Not", holds) if mode == "NotEqual" else holds, "float32"))


@lowers("Where")
def where(c: Call) -> Value:
    """Select the second operand where the condition is not 0, else the third. Either may be a number."""
    target = c.outputs[0].dtype
    branches = [
        c.e.constant(torch.tensor(c.attr(f"{side}_const_val")).to(getattr(torch, target.name)), target)
        if c.attr(f"{side}_is_const")
        else c.value(i)
        for i, side in ((1, "x"), (2, "y"))
    ]
    chosen = c.e.op("Not", c.e.op("Equal", c.value(), 0.0))
    return c.e.op("Where", chosen, *branches)


@lowers("Clip")
def clip(c: Call) -> Value:
    """Clip to min and max. A bound beyond the float format becomes its end."""
    most = torch.finfo(getattr(torch, c.value().dtype.name)).max
    low, high = (max(-most, min(most, c.attr(name))) for name in ("min", "max"))
    return c.made(c.e.op("Clip", c.real(), low, None if c.attr("max") == float("inf") else high))


@lowers("Pow")
def power(c: Call) -> Value:
    """Raise x to a fixed exponent."""
    return c.made(c.e.op("Pow", c.real(), float(c.attr("exponent"))))
