"""Number formats: casts, quantization, dequantization.

Formats below one byte are kept one value in a container: integers as themselves, float4_e2m1fn as its code.
"""

from __future__ import annotations

import torch
from torch import Tensor

from quantizer.core.dtypes import DTYPES, DType
from quantizer.core.errors import UnsupportedError
from quantizer.ir.graph import Node, container
from quantizer.runtime.onnx.kernels import Context, axis_of, kernel, one_of

FLOAT4 = (0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0)
"""The magnitudes of float4_e2m1fn, by code; the fourth bit is the sign."""
FLOAT4_NAME = "float4_e2m1fn"
POWERS = "float8_e8m0fnu"
EIGHT_BITS = ("float8_e4m3fn", "float8_e5m2", "float8_e4m3fnuz", "float8_e5m2fnuz")
FORMATS: dict[torch.dtype, DType] = {
    container(dtype): dtype
    for dtype in DTYPES.values()
    if dtype.name != FLOAT4_NAME and dtype.bits in (1, 8, 16, 32, 64)
}
"""The number format of a torch type, unless the graph declares a narrower one."""


def decoded(x: Tensor, source: DType) -> Tensor:
    """Return the numbers in x: float32 for floats below 16 bits, everything else unchanged."""
    if source.name == FLOAT4_NAME:
        magnitude = torch.tensor(FLOAT4)[(x & 7).long()]
        return torch.where(x >= 8, -magnitude, magnitude)
    return x.to(torch.float32) if source.kind == "float" and source.bits == 8 else x


def encoded(x: Tensor, target: DType, *, saturate: bool = True, round_mode: str = "up") -> Tensor:
    """Return numbers in a format: integers are truncated and wrap, floats round half to even.

    Source: the tables of the ONNX operator Cast; with *saturate* float8 stops at its largest number. Without
    it, float8 overflows to infinity; float8_e4m3fn has none and overflows to NaN, from half a step past 448 on.
    """
    if target.kind == "bool":
        return x != 0
    if target.is_integer:
        return _integers(x, target)
    if target.name == FLOAT4_NAME:
        return _float4(x.float())
    if target.name == POWERS:
        return _powers(x.float(), saturate=saturate, round_mode=round_mode)
    kind = container(target)
    if target.name in EIGHT_BITS:
        x = x.float()
        largest = torch.finfo(kind).max
        if saturate:
            x = x.clamp(-largest, largest)
        elif target.name == "float8_e4m3fn":
            # 448 + 16 is half a step past the largest number; up to there rounding returns to 448
            x = torch.where(x.abs() > largest + 16, torch.nan, x)
    return x.to(kind)


def _integers(x: Tensor, target: DType) -> Tensor:
    if x.dtype == torch.uint64 and target.bits == 64:
        return x.view(container(target))
    wide = x.to(torch.int64) if x.dtype != torch.uint64 else x.view(torch.int64)
    if target.bits < 8:
        # the low bits, as a two's complement of that width
        wide = wide & ((1 << target.bits) - 1)
        if target.kind == "int":
            wide = torch.where(wide > target.max, wide - (1 << target.bits), wide)
    return wide.to(container(target))


def _float4(x: Tensor) -> Tensor:
    """Round half to even to one of the magnitudes, at most 6; NaN gives zero, as in ONNX's own tests."""
    magnitude = torch.nan_to_num(x.abs(), nan=0.0, posinf=FLOAT4[-1])
    table = torch.tensor(FLOAT4)
    # a tie lies exactly between two magnitudes, all of which float32 holds
    middles = (table[1:] + table[:-1]) / 2
    code = torch.bucketize(magnitude, middles)
    tie = torch.isin(magnitude, middles) & (code % 2 == 1)
    code = torch.where(tie, code + 1, code)
    negative = torch.signbit(x) & ~torch.isnan(x)
    return (code + 8 * negative).to(torch.uint8)


def _powers(x: Tensor, *, saturate: bool, round_mode: str) -> Tensor:
    """Return powers of two: the exponent rounded up, down or to the nearest."""
    one_of("Cast", "round_mode", round_mode, ("up", "down", "nearest"))
    # frexp's fraction is in [1/2, 1): one exponent lower it is in [1, 2)
    mantissa, exponent = torch.frexp(x.abs())
    below = exponent - 1
    # 0.75 is the middle between two powers
    up = {"up": mantissa > 0.5, "down": torch.zeros_like(x, dtype=torch.bool), "nearest": mantissa >= 0.75}[round_mode]
    code = below + up + 127
    if not saturate and bool(((code < 0) | (code > 254)).any()):
        raise UnsupportedError("Cast to float8_e8m0fnu with saturate=0: every number must lie in [2**-127, 2**127].")
    code = torch.where(x == 0, 0, code)
    code = torch.where(torch.isfinite(x), code.clamp(0, 254), torch.where(torch.isnan(x), 255, 254))
    return code.to(torch.uint8).view(torch.float8_e8m0fnu)


@kernel("Cast")
def cast(x: Tensor, *, to: DType, saturate: int = 1, round_mode: str = "up", op: Node, ctx: Context) -> Tensor:
    """Return the numbers of x in another format."""
    return encoded(decoded(x, ctx.dtype(op.inputs[0])), to, saturate=bool(saturate), round_mode=round_mode)


@kernel("CastLike")
def cast_like(x: Tensor, like: Tensor, *, saturate: int = 1, round_mode: str = "up", op: Node, ctx: Context) -> Tensor:
    """Return the numbers of x in the format of another operand."""
    target = ctx.dtype(op.inputs[1])
    return encoded(decoded(x, ctx.dtype(op.inputs[0])), target, saturate=bool(saturate), round_mode=round_mode)


def _along(values: Tensor, x: Tensor, axis: int, block: int) -> Tensor:
    """Return scales or zero points shaped to broadcast with x: one, one per slice, or one per block of an axis."""
    if values.numel() == 1 and not block:
        return values.reshape(())
    dim = axis_of("QuantizeLinear", axis, x.dim())
    if block:
        wanted = [-(-size // block) if i == dim else size for i, size in enumerate(x.shape)]
        if list(values.shape) != wanted:
            raise UnsupportedError(f"scales of shape {list(values.shape)}: must be {wanted} for blocks of {block}.")
        return values.repeat_interleave(block, dim=dim).narrow(dim, 0, x.shape[dim])
    if values.dim() != 1 or values.shape[0] != x.shape[dim]:
        raise UnsupportedError(f"scales of shape {list(values.shape)}: must be [{x.shape[dim]}], as axis {dim}.")
    return values.reshape([-1 if i == dim else 1 for i in range(x.dim())])


@kernel("QuantizeLinear")
def quantize_linear(
    x: Tensor,
    scale: Tensor,
    zero: Tensor | None = None,
    *,
    axis: int = 1,
    saturate: int = 1,
    block_size: int = 0,
    output_dtype: DType | int = 0,
    precision: DType | int = 0,
    op: Node,
    ctx: Context,
) -> Tensor:
    """Round x / scale half to even, add the zero point, saturate; NaN gives the smallest code.

    Source: the ONNX operator QuantizeLinear, which leaves NaN open; ONNX Runtime's kernels give the smallest code.
    """
    if zero is not None:
        target = ctx.dtype(op.inputs[2])
    else:
        target = output_dtype if isinstance(output_dtype, DType) else DTYPES["uint8"]
    steps = scale.to(torch.float32) if scale.dtype == torch.float8_e8m0fnu else scale
    kind = container(precision) if isinstance(precision, DType) else steps.dtype
    quotient = x.to(kind) / _along(steps.to(kind), x, axis, block_size)
    if target.is_integer:
        offset = 0 if zero is None else _along(zero.to(torch.int64), x, axis, block_size)
        codes = (
            torch.round(quotient.double()).nan_to_num(-(2.0**40), 2.0**40, -(2.0**40)).clamp(-(2.0**40), 2.0**40).long()
        )
        return (codes + offset).clamp(target.min, target.max).to(container(target))
    if zero is not None and bool((decoded(zero, target) != 0).any()):
        raise UnsupportedError(f"QuantizeLinear to {target}: zero_point must be 0.")
    return encoded(quotient, target, saturate=bool(saturate))


@kernel("DequantizeLinear")
def dequantize_linear(
    x: Tensor,
    scale: Tensor,
    zero: Tensor | None = None,
    *,
    axis: int = 1,
    block_size: int = 0,
    output_dtype: DType | int = 0,
    op: Node,
    ctx: Context,
) -> Tensor:
    """Return scale * (code - zero point), in the scale's format unless another is asked for."""
    source = ctx.dtype(op.inputs[0])
    values = decoded(x, source)
    if zero is not None:
        offset = _along(decoded(zero, source), x, axis, block_size)
        # in int64, because the difference of two codes may leave their type
        values = values.to(torch.int64) - offset.to(torch.int64) if source.is_integer else values - offset
    steps = scale.to(torch.float32) if scale.dtype == torch.float8_e8m0fnu else scale
    kind = container(output_dtype) if isinstance(output_dtype, DType) else steps.dtype
    return (values.to(steps.dtype) * _along(steps, x, axis, block_size)).to(kind)


@kernel("DynamicQuantizeLinear")
def dynamic_quantize_linear(x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Quantize x to uint8 over its own range, widened to contain 0; the scale is 1 if x is empty or all zeros.

    The standard leaves scale 0 open. ONNX Runtime and the reference use 1.
    """
    # a zero among the values widens the range, and makes it exist for an empty x
    values = torch.cat([x.reshape(-1), x.new_zeros(1)])
    low, high = values.amin(), values.amax()
    scale = (high - low) / 255
    scale = torch.where(scale == 0, torch.ones_like(scale), scale)
    zero = torch.round((0 - low) / scale).clamp(0, 255)
    codes = (torch.round(x / scale) + zero).clamp(0, 255)
    return codes.to(torch.uint8), scale, zero.to(torch.uint8)
