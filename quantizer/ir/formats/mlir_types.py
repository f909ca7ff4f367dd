"""Types of Top values: tensors of numbers and of quantized numbers, as MLIR spells them."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass

import torch

from quantizer.core.dtypes import DTYPES, DType
from quantizer.core.errors import UnsupportedError
from quantizer.ir.formats.mlir_text import Cursor
from quantizer.ir.graph import FREE, LARGEST, Tensor
from quantizer.numerics.qparams import QParams

_ELEMENTS = {
    "float64": "f64",
    "float32": "f32",
    "float16": "f16",
    "bfloat16": "bf16",
    "bool": "i1",
    "int8": "si8",
    "uint8": "ui8",
    "int16": "si16",
    "uint16": "ui16",
    "int32": "si32",
    "uint32": "ui32",
    "int64": "i64",
    "uint64": "ui64",
}
"""Our number format -> how TpuLang spells it: 64 bits without a sign, fewer with one."""
# the second part has spellings that are read and never written
_DTYPES = {text: DTYPES[name] for name, text in _ELEMENTS.items()} | {
    text: DTYPES[name] for text, name in (("i8", "int8"), ("i16", "int16"), ("i32", "int32"), ("si64", "int64"))
}
QUANTIZED = {"int8": "i8", "uint8": "u8", "int16": "i16", "uint16": "u16"}
"""The number formats that may have quantization parameters -> how a quantized type spells them."""
_STORAGE = {text: DTYPES[name] for name, text in QUANTIZED.items()}
MAX_RANK = 16
_SHAPE = re.compile(r"(?:(\*)x|((?:(?:\d{1,18}|\?)x)*))(.*)", re.DOTALL)
_UNIFORM = re.compile(
    r"!quant\.uniform<\s*([iu]\d+)\s*(?:<\s*(-?\d{1,18})\s*:\s*(-?\d{1,18})\s*>)?"
    r"\s*:\s*f32\s*(?::\s*(\d{1,4}))?\s*,\s*(.*?)\s*>",
    re.DOTALL,
)
_STEP = re.compile(r"\s*(\d+(?:\.\d*)?(?:[eE][+-]?\d{1,4})?)\s*(?::\s*(-?\d{1,18}))?\s*")


@dataclass(frozen=True)
class TensorType:
    """The type of a tensor: its shape (of unknown rank where `ranked` is False), numbers, and their quantization."""

    shape: tuple[int, ...]
    dtype: DType
    qparams: QParams | None
    ranked: bool
    text: str
    """The one spelling that we write: types are the same if their spellings are."""

    def tensor(self, name: str, data: torch.Tensor | None = None) -> Tensor:
        """Return the tensor of this type that is called *name*."""
        return Tensor(name, self.shape, self.dtype, data, self.qparams, self.ranked)


def type_text(tensor: Tensor) -> str:
    """Return the type of *tensor*; UnsupportedError if MLIR's text cannot express it."""
    place = f"tensor {tensor.name!r}"
    if tensor.dtype.name not in _ELEMENTS:
        raise UnsupportedError(f"{place}: Top has no {tensor.dtype}; it has {', '.join(_ELEMENTS)}.")
    element = _ELEMENTS[tensor.dtype.name] if tensor.qparams is None else _uniform(place, tensor, tensor.qparams)
    sizes = "".join(f"{'?' if size == FREE else size}x" for size in tensor.shape) if tensor.ranked else "*x"
    return f"tensor<{sizes}{element}>"


def _uniform(place: str, tensor: Tensor, params: QParams) -> str:
    dtype = tensor.dtype
    if dtype.name not in QUANTIZED or params.dtype != dtype or params.steps is not None:
        raise UnsupportedError(
            f"{place}: {dtype} with quantization parameters: must be codes of {', '.join(QUANTIZED)}."
        )
    storage = QUANTIZED[dtype.name]
    if (params.qmin, params.qmax) != (dtype.min, dtype.max):
        storage += f"<{params.qmin}:{params.qmax}>"
    pairs = zip(params.scale.reshape(-1).tolist(), params.zero_point.reshape(-1).tolist(), strict=True)
    steps = [float_text(scale) + (f":{zero}" if zero else "") for scale, zero in pairs]
    if params.scale.dim() == 0:
        return f"!quant.uniform<{storage}:f32, {steps[0]}>"
    return f"!quant.uniform<{storage}:f32:{(params.axis or 0) % max(len(tensor.shape), 1)}, {{{', '.join(steps)}}}>"


def float_text(value: float) -> str:
    """Return the shortest spelling that MLIR reads as a float and that gives the same number again."""
    mantissa, mark, exponent = repr(value).partition("e")
    return f"{mantissa}{'' if '.' in mantissa else '.0'}{mark}{exponent}"


class Types:
    """The types of one text, each spelling read once."""

    def __init__(self) -> None:
        self._known: dict[str, TensorType] = {}

    def read(self, cursor: Cursor) -> TensorType | None:
        """Return the type at the cursor; None for `none`; FormatError for other types."""
        start = cursor.token.at
        if cursor.skip("none"):
            return None
        if not cursor.skip("tensor"):
            cursor.fail(f"must be a type, tensor<...> or none, got {cursor.shown()}")
        inner = cursor.enclosed("tensor type")
        if inner not in self._known:
            self._known[inner] = _tensor_type(cursor, inner, start)
        return self._known[inner]


def _tensor_type(cursor: Cursor, inner: str, start: int) -> TensorType:
    found = _SHAPE.fullmatch(inner.strip())
    assert found is not None
    star, sizes, element = found.groups()
    shape = tuple(FREE if size == "?" else int(size) for size in (sizes or "").split("x")[:-1])
    if len(shape) > MAX_RANK:
        cursor.fail(f"{len(shape)} axes: at most {MAX_RANK}", start)
    dtype, params = _element(cursor, element, shape, start)
    # a size that is not known counts as 1
    if math.prod(max(size, 1) for size in shape) * dtype.bits > 8 * LARGEST:
        cursor.fail(f"tensor<{inner[:60]}>: more than {LARGEST} bytes, which no tensor may have", start)
    ranked = star is None
    return TensorType(shape, dtype, params, ranked, type_text(Tensor("", shape, dtype, None, params, ranked)))


def _element(cursor: Cursor, text: str, shape: tuple[int, ...], start: int) -> tuple[DType, QParams | None]:
    if text in _DTYPES:
        return _DTYPES[text], None
    found = _UNIFORM.fullmatch(text)
    if found is None:
        known = ", ".join([*_ELEMENTS.values(), "!quant.uniform<i8:f32, scale:zero_point>"])
        cursor.fail(f"no element type {text[:60]!r}: must be one of {known}", start)
    storage, low, high, axis, steps = found.groups()
    if storage not in _STORAGE:
        cursor.fail(f"{storage!r} cannot hold quantized numbers: must be one of {', '.join(_STORAGE)}", start)
    dtype = _STORAGE[storage]
    qmin, qmax = (dtype.min, dtype.max) if low is None else (int(low), int(high))
    if not dtype.min <= qmin <= qmax <= dtype.max:
        cursor.fail(f"codes {qmin}:{qmax}: must lie in {dtype} [{dtype.min}, {dtype.max}]", start)
    braced = steps.startswith("{") and steps.endswith("}")
    if braced != (axis is not None):
        cursor.fail("quantized per axis is written i8:f32:axis, {...}, per tensor i8:f32, scale:zero_point", start)
    pairs = [_step(cursor, item, qmin, qmax, start) for item in (steps[1:-1] if braced else steps).split(",")]
    if not braced and len(pairs) > 1:
        cursor.fail("several scales without an axis: write i8:f32:axis, {...}", start)
    scales = torch.tensor([scale for scale, _ in pairs], dtype=torch.float64)
    zeros = torch.tensor([zero for _, zero in pairs], dtype=torch.int64)
    if not braced:
        return dtype, QParams(dtype, scales[0], zeros[0], qmin, qmax)
    return dtype, QParams(dtype, scales, zeros, qmin, qmax, _axis(cursor, int(axis), len(pairs), shape, start))


def _step(cursor: Cursor, text: str, qmin: int, qmax: int, start: int) -> tuple[float, int]:
    found = _STEP.fullmatch(text)
    if found is None:
        cursor.fail(f"{text[:40]!r}: must be scale:zero_point, a positive number and an integer", start)
    scale, zero = float(found[1]), int(found[2] or 0)
    if not 0.0 < scale < math.inf:
        cursor.fail(f"scale {found[1][:40]}: must be positive and finite", start)
    if not qmin <= zero <= qmax:
        cursor.fail(f"zero point {zero}: must be one of the codes [{qmin}, {qmax}]", start)
    return scale, zero


def _axis(cursor: Cursor, axis: int, count: int, shape: tuple[int, ...], start: int) -> int:
    """Return the axis that has *count* slices: the named one, or 0 if TpuLang names 1 for convolution weights."""
    weights = axis == 1 and shape[1:2] != (count,) and shape[:1] == (count,)
    if not weights and shape[axis : axis + 1] != (count,):
        cursor.fail(f"{count} scales along axis {axis} of shape {list(shape)}: every slice needs one scale", start)
    return 0 if weights else axis
