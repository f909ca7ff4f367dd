"""Conversions between real numbers and codes, and between codes."""

from __future__ import annotations

import torch

from quantizer.lang.lowering.emitter import Value
from quantizer.lang.lowering.lower import Call, lowers
from quantizer.lang.lowering.rounding import codes, quotient, requantized, rounded, saturated

INT32 = (-(1 << 31), (1 << 31) - 1)


@lowers("Cast")
def cast(c: Call) -> Value:
    """Convert to another format. Codes are requantized; plain integers are converted exactly and saturated."""
    target, source = c.outputs[0], c.value().dtype
    if source.is_integer and target.dtype.is_integer and c.params() is None and target.qparams is None:
        return saturated(c.e, c.e.cast(c.value(), "int64"), target.dtype)
    return c.made(c.real(), mode=c.attr("round_mode"))


def _channels(c: Call, values: tuple[int, ...], axis: int) -> torch.Tensor:
    """Return one number, or one for each slice of an axis, shaped to broadcast."""
    data = torch.tensor(values, dtype=torch.int64)
    if data.numel() == 1:
        return data.reshape(())
    rank = c.value().rank
    return data.reshape([-1 if i == axis % rank else 1 for i in range(rank)])


def _zero_of(c: Call) -> torch.Tensor:
    params = c.outputs[0].qparams
    return torch.zeros((), dtype=torch.int64) if params is None else params.along(params.zero_point, c.value().rank)


@lowers("RequantInt")
def requant_int(c: Call) -> Value:
    """Return `(x - zero_point) * multiplier * 2**-rshift` as codes of the result."""
    axis = c.attr("rq_axis")
    multiplier = _channels(c, c.attr("multiplier"), axis)
    shift = -_channels(c, c.attr("rshift"), axis)
    return requantized(
        c.e, c.centred(), multiplier, shift, _zero_of(c), c.outputs[0].dtype, c.attr("quant_mode"), c.attr("round_mode")
    )


@lowers("DequantInt")
def dequant_int(c: Call) -> Value:
    """Multiply codes less their zero point, in mode TFLite by the doubled high product; then shift right by -shift."""
    multiplier, shift = (_channels(c, c.attr(name), 1) for name in ("multiplier", "shift"))
    y = c.e.op("Mul", c.centred(), multiplier)
    if c.attr("quant_mode") == "TFLite":
        y = c.e.op("Mul", y, 1 << c.attr("lshift"))
        y = quotient(c.e, y, torch.tensor(31, dtype=torch.int64), "HalfUp")
    return saturated(c.e, quotient(c.e, y, -shift, c.attr("round_mode")), c.outputs[0].dtype)


@lowers("RequantFp")
def requant_fp(c: Call) -> Value:
    """Return round(x * scale + offset), computed in float32, as codes."""
    scale, offset = (torch.tensor(c.attr(name), dtype=torch.float32) for name in ("scale", "offset"))
    rank = c.value().rank
    shapes = [[] if v.numel() == 1 else [-1 if i == 1 else 1 for i in range(rank)] for v in (scale, offset)]
    x = c.e.op("Mul", c.e.cast(c.value(), "float32"), scale.reshape(shapes[0]))
    x = c.e.op("Add", x, offset.reshape(shapes[1]))
    # no parameters: scale and offset are applied already
    return codes(c.e, x, c.outputs[0].dtype, None, c.attr("round_mode"))


@lowers("MeanStdScale")
def mean_std_scale(c: Call) -> Value:
    """Return (x - mean) / std for each channel; an integer result is on the grid of scale and zero point."""
    along = [1, -1, *[1] * (c.value().rank - 2)]
    mean, std, scale, zero = (
        torch.tensor(c.attr(name), dtype=torch.float32) for name in ("mean", "std", "scale", "zero_points")
    )
    x = c.e.op("Sub", c.e.cast(c.value(), "float32"), mean.reshape(along))
    x = c.e.op("Div", x, std.reshape(along))
    target = c.outputs[0].dtype
    if not target.is_integer:
        return c.e.cast(x, target)
    x = c.e.op("Div", x, scale[-1].reshape(()))
    y = c.e.cast(c.e.op("Clip", rounded(c.e, x, c.attr("rounding_mode")), *map(float, INT32)), "int64")
    return saturated(c.e, c.e.op("Add", y, int(zero[-1])), target)
