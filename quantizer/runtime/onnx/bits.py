"""Operators on bits: shifts, logic, casts that keep bits, tests for NaN and infinities."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor

from quantizer.core.dtypes import DType
from quantizer.core.errors import UnsupportedError
from quantizer.ir.graph import container
from quantizer.runtime.onnx.elementwise import by_numpy
from quantizer.runtime.onnx.kernels import kernel, one_of
from quantizer.runtime.onnx.layout import SIGNED


def _integers(op: str, *operands: Tensor) -> None:
    kinds = {x.dtype for x in operands}
    if len(kinds) > 1 or any(kind.is_floating_point or kind == torch.bool for kind in kinds):
        raise UnsupportedError(f"{op} of {', '.join(str(x.dtype) for x in operands)}: must be integers of one type.")


def _bitwise(name: str, function: Callable[..., Any]) -> None:
    @kernel(name)
    def compute(*operands: Tensor) -> Tensor:
        _integers(name, *operands)
        return by_numpy(function, *operands)


_bitwise("BitwiseAnd", np.bitwise_and)
_bitwise("BitwiseOr", np.bitwise_or)
_bitwise("BitwiseXor", np.bitwise_xor)
_bitwise("BitwiseNot", np.bitwise_not)


@kernel("BitShift")
def bit_shift(x: Tensor, y: Tensor, *, direction: str) -> Tensor:
    """Shift bits by y places; bits beyond either end are lost.

    A shift to the right keeps the sign. Where y is below 0 or at least the width, the result is 0; a right shift of a
    negative number gives -1.
    """
    _integers("BitShift", x, y)
    one_of("BitShift", "direction", direction, ("LEFT", "RIGHT"))

    def shifted(a: Any, b: Any) -> Any:
        width = np.iinfo(a.dtype).bits
        # C leaves such shifts open, so that they are replaced by legal ones
        beyond = (b < 0) | (b >= width)
        if direction == "RIGHT":
            return np.right_shift(a, np.where(beyond, width - 1, b).astype(a.dtype)) * _kept(a, beyond)
        # unsigned, so that shifting into the sign bit is defined
        bits = a.view(f"u{a.dtype.itemsize}")
        left = np.left_shift(bits, np.where(beyond, 0, b).astype(bits.dtype))
        return np.where(beyond, left.dtype.type(0), left).view(a.dtype)

    return by_numpy(shifted, x, y)


def _kept(a: Any, beyond: Any) -> Any:
    """Return the factor 0 where a nonnegative number is shifted beyond its width, else 1."""
    return np.where(beyond & (a >= 0), 0, 1).astype(a.dtype)


@kernel("BitCast")
def bit_cast(x: Tensor, *, to: DType) -> Tensor:
    """Return the same bits as numbers of another format of the same width."""
    kind = container(to)
    if (
        to.bits != 8 * x.dtype.itemsize
        or kind.itemsize != x.dtype.itemsize
        or x.dtype not in _WHOLE
        or kind not in _WHOLE
    ):
        raise UnsupportedError(
            f"BitCast of {x.dtype} to {to.name}: both types must have the same size, in whole bytes."
        )
    return x.contiguous().view(SIGNED[x.dtype.itemsize]).view(kind)


_WHOLE = (
    torch.bool,
    torch.uint8,
    torch.int8,
    torch.uint16,
    torch.int16,
    torch.uint32,
    torch.int32,
    torch.uint64,
    torch.int64,
    torch.float16,
    torch.bfloat16,
    torch.float32,
    torch.float64,
    torch.float8_e4m3fn,
    torch.float8_e4m3fnuz,
    torch.float8_e5m2,
    torch.float8_e5m2fnuz,
    torch.float8_e8m0fnu,
)


@kernel("IsNaN")
def is_nan(x: Tensor) -> Tensor:
    """Return whether each element is NaN."""
    return torch.isnan(x)


@kernel("IsInf")
def is_inf(x: Tensor, *, detect_negative: int = 1, detect_positive: int = 1) -> Tensor:
    """Return whether each element is infinite with a requested sign."""
    found = torch.zeros(x.shape, dtype=torch.bool)
    # torch tests no float8
    x = x.float() if x.dtype.itemsize == 1 else x
    for asked, which in ((detect_negative, torch.isneginf), (detect_positive, torch.isposinf)):
        found = found | which(x) if asked else found
    return found
