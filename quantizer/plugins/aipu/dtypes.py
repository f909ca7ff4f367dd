"""Number formats under Compass's names, and the functions of operator plugins on them."""

from __future__ import annotations

from enum import Enum
from typing import Any

import numpy as np
import torch

from quantizer.core.dtypes import DTYPES, DType
from quantizer.core.errors import GraphError, PluginError
from quantizer.core.wording import suggestion


class Dtype(Enum):
    """A number format; the value is its name in `quantizer.core.dtypes`."""

    BOOL = "bool"
    INT8 = "int8"
    UINT8 = "uint8"
    INT16 = "int16"
    UINT16 = "uint16"
    INT32 = "int32"
    UINT32 = "uint32"
    INT64 = "int64"
    UINT64 = "uint64"
    ALIGNED_INT4 = "int4"
    ALIGNED_UINT4 = "uint4"
    ALIGNED_INT12 = "int12"
    ALIGNED_UINT12 = "uint12"
    FP64 = "float64"
    FP32 = "float32"
    FP16 = "float16"
    BFP16 = "bfloat16"
    FP8_E4M3FN = "float8_e4m3fn"
    FP8_E5M2 = "float8_e5m2"
    FP6_E2M3FN = "float6_e2m3fn"
    FP6_E3M2FN = "float6_e3m2fn"
    FP4_E2M1FN = "float4_e2m1fn"

    def __str__(self) -> str:
        return f"Dtype.{self.name}"


_TORCH: dict[Dtype, torch.dtype] = {
    Dtype.BOOL: torch.bool,
    Dtype.INT8: torch.int8,
    Dtype.UINT8: torch.uint8,
    Dtype.INT16: torch.int16,
    Dtype.UINT16: torch.int32,
    Dtype.INT32: torch.int32,
    Dtype.UINT32: torch.int64,
    Dtype.INT64: torch.int64,
    Dtype.UINT64: torch.int64,
    Dtype.ALIGNED_INT4: torch.int8,
    Dtype.ALIGNED_UINT4: torch.uint8,
    Dtype.ALIGNED_INT12: torch.int16,
    Dtype.ALIGNED_UINT12: torch.int32,
    Dtype.FP64: torch.float64,
    Dtype.FP32: torch.float32,
    Dtype.FP16: torch.float16,
    Dtype.BFP16: torch.bfloat16,
}
"""Compass format -> the torch type that holds its values. Unsigned formats use the next larger type, because torch
lacks arithmetic on unsigned types."""
_OF_TORCH = {
    # reversed, so that of several formats in one torch type the first one wins: int8 is INT8, not ALIGNED_INT4
    **{kind: dtype for dtype, kind in reversed(_TORCH.items())},
    torch.int32: Dtype.INT32,
    torch.int64: Dtype.INT64,
    torch.bool: Dtype.UINT8,
}
_ALIASES = {
    "bf16": "BFP16",
    "bfp16": "BFP16",
    "fp16": "FP16",
    "fp32": "FP32",
    "float": "FP32",
    "fp64": "FP64",
    "double": "FP64",
    "boolean": "BOOL",
}


def ours(dtype: Dtype) -> DType:
    """Return our number format for a Compass format."""
    return DTYPES[dtype.value]


def from_ours(dtype: DType) -> Dtype:
    """Return the narrowest Compass format that holds *dtype*: int5 is an INT8 there, int48 an INT64."""
    try:
        return Dtype(dtype.name)
    except ValueError:
        return bits2dtype(dtype.bits, is_signed=dtype.kind == "int")


def str2dtype(name: str) -> Dtype:
    """Return the format that *name* spells, as IR text or as a member; PluginError for any other text."""
    text = name.strip().lower().removeprefix("dtype.")
    member = _ALIASES.get(text, text.upper())
    if member in Dtype.__members__:
        return Dtype[member]
    values = {dtype.value: dtype for dtype in Dtype}
    plain = text.removeprefix("aligned_")
    if plain in values:
        return values[plain]
    raise PluginError(f"dtype {name!r}: no such number format.{suggestion(member, Dtype.__members__, 'Known')}")


def dtype2str(dtype: Dtype) -> str:
    """Return the name of *dtype* in IR text: `int8`, `aligned_int4`."""
    return f"aligned_{dtype.value}" if dtype.name.startswith("ALIGNED_") else dtype.value


def dtype2bits(dtype: Dtype) -> int:
    """Return the number of bits of a value; 8 for BOOL, as IR stores it."""
    return 8 if dtype is Dtype.BOOL else ours(dtype).bits


def dtype2bytes(dtype: Dtype) -> int:
    """Return the number of bytes of a value in the .bin file."""
    return int(np.dtype(ours(dtype).storage).itemsize)


def dtype2nptype(dtype: Dtype) -> type[Any]:
    """Return the numpy type that holds values of *dtype*; float32 for BFP16, which numpy lacks."""
    storage = "float32" if dtype is Dtype.BFP16 else ours(dtype).storage
    found: type[Any] = np.dtype(storage).type
    return found


def nptype2dtype(kind: Any) -> Dtype:
    """Return the format of a numpy type."""
    name = np.dtype(kind).name
    if name not in {dtype.value for dtype in Dtype}:
        raise PluginError(f"numpy type {name!r}: no Compass format holds it.")
    return Dtype(name)


def torch_type2dtype(kind: torch.dtype) -> Dtype:
    """Return the format of a torch type; UINT8 for bool, as Compass computes with it."""
    if kind not in _OF_TORCH:
        raise PluginError(f"torch type {kind}: no Compass format holds it.")
    return _OF_TORCH[kind]


def dtype2torch_type(dtype: Dtype) -> torch.dtype:
    """Return the torch type that holds values of *dtype*."""
    if dtype not in _TORCH:
        raise PluginError(f"{dtype}: torch has no type for it.")
    return _TORCH[dtype]


def working_type(dtype: Dtype) -> torch.dtype:
    """Return the torch type of a tensor read from IR: integers of up to 16 bits as int32, wider ones as int64."""
    if is_float(dtype):
        return torch.float32 if dtype is Dtype.FP64 else dtype2torch_type(dtype)
    return torch.int32 if dtype2bits(dtype) <= 16 else torch.int64


def is_float(dtype: Dtype | torch.dtype) -> bool:
    """Return whether a Compass or torch format holds real numbers."""
    return dtype.is_floating_point if isinstance(dtype, torch.dtype) else ours(dtype).kind == "float"


def is_signed(dtype: Dtype | torch.dtype) -> bool:
    """Return whether a Compass or torch format has negative values."""
    return dtype.is_signed if isinstance(dtype, torch.dtype) else ours(dtype).kind in ("int", "float")


def bits2dtype(
    bits: int,
    is_signed: bool,
    use_float: bool = False,
) -> Dtype:  # Compass's own form
    """Return the narrowest format of at least *bits* bits: integers of 4, 8, 12, 16, 32, 64, floats of 16, 32."""
    bits = int(bits)
    if use_float:
        return Dtype.BFP16 if bits <= 16 else Dtype.FP32 if bits <= 32 else Dtype.FP64
    sign = "INT" if is_signed else "UINT"
    for width, name in ((4, "ALIGNED_{}4"), (8, "{}8"), (12, "ALIGNED_{}12"), (16, "{}16"), (32, "{}32"), (64, "{}64")):
        if bits <= width:
            return Dtype[name.format(sign)]
    raise GraphError(f"bits={bits}: no Compass format is that wide; the widest has 64 bits.")


def bits2range(bits: int, is_signed: bool) -> tuple[int, int]:
    """Return the smallest and the largest code of *bits* bits."""
    bits = int(bits)
    return (-(1 << (bits - 1)), (1 << (bits - 1)) - 1) if is_signed else (0, (1 << bits) - 1)


def dtype2range(dtype: Dtype) -> tuple[float, float]:
    """Return the smallest and the largest value of *dtype*; for a float format those of its bits, as in Compass."""
    return bits2range(dtype2bits(dtype), is_signed(dtype))


def range2bits(vmin: float, vmax: float, force_int: bool = False) -> tuple[int, bool]:
    """Return the fewest bits whose codes cover [vmin, vmax], and whether they are signed."""
    signed = bool(vmin < 0) or force_int
    bits = 1
    while not (bits2range(bits, signed)[0] <= vmin and vmax <= bits2range(bits, signed)[1]):
        bits += 1
    return bits, signed


def range2dtype(vmin: float, vmax: float, force_int: bool = False) -> tuple[int, Dtype]:
    """Return (8, 16 or 32, format) of the narrowest integers that cover [vmin, vmax]; signed if vmin < 0 or forced."""
    bits, signed = range2bits(float(vmin), float(vmax), force_int)
    width = next((width for width in (8, 16) if bits <= width), 32)
    return width, bits2dtype(width, signed)
