"""Narrow number formats: float32 values rounded to the values of a format, small integers packed into bytes."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Literal

import torch
from torch import Tensor

from quantizer.core.dtypes import DTYPES, DType
from quantizer.core.errors import GraphError
from quantizer.core.formats import FLOAT_LAYOUTS

FloatOverflow = Literal["saturate", "nan"]


def cast(x: Tensor, target: DType | str, *, overflow: FloatOverflow = "saturate") -> Tensor:
    """Return float32 *x* rounded half to even to values that *target* holds, as float32; the sign of zero stays.

    *overflow* says what happens to infinite values, and to values that round beyond the largest one. saturate: they
    become the largest value (torch, ONNX). nan: they become infinity, or NaN in a format without infinity (ml_dtypes).
    NaN stays NaN. GraphError for `nan`, and for NaN values, in a format without NaN.
    """
    name = str(target)
    if name not in FLOAT_LAYOUTS:
        raise GraphError(f"cast to {name!r}: not a float format. Known: {', '.join(FLOAT_LAYOUTS)}.")
    form = FLOAT_LAYOUTS[name]
    if overflow == "nan" and not form.has_nan:
        raise GraphError(f"cast to {name} with overflow 'nan': the format has no NaN. Use 'saturate'.")
    if not form.has_nan and bool(x.isnan().any()):
        raise GraphError(f"cast of NaN to {name}: the format has no such value. Replace NaN before the cast.")
    wide = x.to(torch.float64)
    _, exponent = torch.frexp(wide)
    # frexp gives 1 more than the exponent; below the smallest normal number, 2**(1 - bias), the step stays constant
    step = torch.exp2((exponent.clamp_min(2 - form.bias) - 1 - form.mantissa_bits).to(torch.float64))
    rounded = torch.where(wide.isfinite(), torch.round(wide / step) * step, wide)
    if overflow == "saturate":
        rounded = rounded.clamp(-form.largest, form.largest)
    else:
        beyond = math.inf if form.has_infinity else math.nan
        rounded = torch.where(rounded.abs() > form.largest, torch.copysign(torch.tensor(beyond), rounded), rounded)
    return rounded.to(torch.float32)


def pack(codes: Tensor, bits: int, *, signed: bool = True) -> Tensor:
    """Return uint8 bytes of flat *codes* of 2, 4 or 8 bits, the first code in the lowest bits, zeros after the last.

    GraphError if a code does not fit.
    """
    kind = _packable(bits, signed=signed)
    flat = codes.flatten().to(torch.int64)
    if flat.numel() and (int(flat.min()) < kind.min or int(flat.max()) > kind.max):
        raise GraphError(f"codes [{int(flat.min())}, {int(flat.max())}]: must lie in {kind} [{kind.min}, {kind.max}].")
    per_byte = 8 // bits
    padded = torch.zeros(-(-flat.numel() // per_byte) * per_byte, dtype=torch.int64)
    # two's complement in *bits* bits
    padded[: flat.numel()] = flat & ((1 << bits) - 1)
    places = torch.arange(per_byte) * bits
    return (padded.reshape(-1, per_byte) << places).sum(1).to(torch.uint8)


def unpack(packed: Tensor, bits: int, shape: Sequence[int], *, signed: bool = True) -> Tensor:
    """Return the int64 codes of *shape* that `pack` wrote; GraphError if the bytes are too few or too many."""
    kind = _packable(bits, signed=signed)
    count, per_byte = math.prod(shape), 8 // bits
    if packed.numel() != -(-count // per_byte):
        raise GraphError(
            f"{packed.numel()} bytes for {count} codes of {bits} bits: must be {-(-count // per_byte)} bytes."
        )
    places = torch.arange(per_byte) * bits
    fields = (packed.flatten().to(torch.int64).reshape(-1, 1) >> places) & ((1 << bits) - 1)
    codes = fields.flatten()[:count]
    # a field above the largest code is a negative number
    return torch.where(codes > kind.max, codes - (1 << bits), codes).reshape(tuple(shape))


def _packable(bits: int, *, signed: bool) -> DType:
    if bits not in (2, 4, 8):
        raise GraphError(f"bits={bits}: codes of 2, 4 or 8 bits are packed.")
    return DTYPES[f"int{bits}" if signed else f"uint{bits}"]
