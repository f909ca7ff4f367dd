"""Tensors and scalars of a graph that is built by hand, and their quantization parameters."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

import numpy as np
import torch

from quantizer.core.dtypes import DTYPES
from quantizer.ir.graph import FREE, container
from quantizer.ir.graph import Tensor as Stored
from quantizer.lang.errors import LangError
from quantizer.numerics.qparams import QParams

TENSOR_DTYPES = ("float32", "float16", "int32", "uint32", "int16", "uint16", "int8", "uint8")
QUANTIZED = ("int8", "uint8", "int16", "uint16")
Numbers: TypeAlias = "float | int | Sequence[float] | Sequence[int] | None"


@dataclass(frozen=True)
class Scalar:
    """A number with a type, used in place of a tensor."""

    value: int | float
    dtype: str = "float32"

    def __post_init__(self) -> None:
        if self.dtype not in TENSOR_DTYPES:
            raise LangError(f"Scalar: dtype={self.dtype!r}: must be one of {', '.join(TENSOR_DTYPES)}.")
        if isinstance(self.value, bool) or not isinstance(self.value, int | float):
            raise LangError(f"Scalar: value={self.value!r}: must be a number.")
        if "int" in self.dtype:
            kind = DTYPES[self.dtype]
            if self.value != int(self.value) or not kind.min <= self.value <= kind.max:
                raise LangError(f"Scalar: value={self.value!r}: must be a whole number of {self.dtype}.")


@dataclass(frozen=True)
class Quantization:
    """What is known of a tensor's scale and zero point: each is one number, one per slice of an axis, or unknown."""

    scale: float | tuple[float, ...] | None = None
    zero_point: int | tuple[int, ...] | None = None

    def merged(self, other: Quantization) -> Quantization | None:
        """Merge both; None if they contradict each other."""
        if any(a is not None and b is not None and a != b for a, b in self._beside(other)):
            return None
        (scale, new_scale), (zero, new_zero) = self._beside(other)
        scale = new_scale if scale is None else scale
        zero = new_zero if zero is None else zero
        return Quantization(scale, zero)  # type: ignore[arg-type]

    def _beside(self, other: Quantization) -> tuple[tuple[object, object], tuple[object, object]]:
        return (self.scale, other.scale), (self.zero_point, other.zero_point)

    def __bool__(self) -> bool:
        return self.scale is not None or self.zero_point is not None

    def __str__(self) -> str:
        return f"scale={_shown(self.scale)}, zero_point={_shown(self.zero_point)}"

    def qparams(self, dtype: str, axis: int) -> QParams:
        """Return the parameters; an unknown scale is 1, an unknown zero point 0."""
        scale = torch.tensor(1.0 if self.scale is None else self.scale, dtype=torch.float64)
        zero = torch.tensor(0 if self.zero_point is None else self.zero_point, dtype=torch.int64)
        scale, zero = torch.broadcast_tensors(scale, zero)
        kind = DTYPES[dtype]
        own = axis if scale.dim() else None
        return QParams(kind, scale.contiguous(), zero.contiguous(), kind.min, kind.max, own)


def _shown(value: object) -> object:
    return list(value) if isinstance(value, tuple) else value


def quantization_of(dtype: str, scale: Numbers, zero_point: Numbers) -> Quantization:
    """Return checked parameters: scales positive and finite, zero points codes of *dtype*; lists of one are numbers."""
    scales = None if scale is None else _each("scale", scale)
    zeros = None if zero_point is None else _each("zero_point", zero_point)
    if scales is None and zeros is None:
        return Quantization()
    if dtype not in QUANTIZED:
        raise LangError(
            f"scale={scale!r}, zero_point={zero_point!r} of a tensor of {dtype}: must be of an integer of 8 or 16 bits."
        )
    for value in scales or ():
        if not (math.isfinite(value) and value > 0):
            raise LangError(f"scale={value!r}: must be positive and finite.")
    kind = DTYPES[dtype]
    for value in zeros or ():
        if value != int(value) or not kind.min <= value <= kind.max:
            raise LangError(f"zero_point={value!r}: must be a whole number in [{kind.min}, {kind.max}] of {dtype}.")
    if scales and zeros and len(scales) > 1 and len(zeros) > 1 and len(scales) != len(zeros):
        raise LangError(f"{len(scales)} scales and {len(zeros)} zero points: the numbers must be equal.")
    return Quantization(
        None if scales is None else float(scales[0]) if len(scales) == 1 else tuple(map(float, scales)),
        None if zeros is None else int(zeros[0]) if len(zeros) == 1 else tuple(map(int, zeros)),
    )


def _each(argument: str, value: Any) -> tuple[float, ...]:
    listed = tuple(value) if isinstance(value, list | tuple) else (value,)
    if not listed or any(isinstance(item, bool) or not isinstance(item, int | float) for item in listed):
        raise LangError(f"{argument}={value!r}: must be a number or a list of numbers.")
    return listed


class Tensor:
    """A value of a graph: an input, a result of an operator, or a coefficient with data.

    shape: sizes of the axes, by default those of *data*. dtype: one of TENSOR_DTYPES; data must be of it, float32
    data becomes float16. A tensor without a name gets one when it is added to a graph.
    """

    def __init__(
        self,
        shape: Sequence[int] | None = None,
        name: str | None = None,
        ttype: Literal["neuron", "coeff"] = "neuron",
        data: Any = None,
        dtype: str = "float32",
        scale: Numbers = None,
        zero_point: Numbers = None,
    ) -> None:
        """Raise LangError for an unknown dtype, a size below 1, data that does not fit, or impossible parameters."""
        place = "Tensor" if name is None else f"Tensor {name!r}"
        if dtype not in TENSOR_DTYPES:
            raise LangError(f"{place}: dtype={dtype!r}: must be one of {', '.join(TENSOR_DTYPES)}.")
        if ttype not in ("neuron", "coeff") or (ttype == "coeff") != (data is not None):
            raise LangError(f"{place}: ttype={ttype!r}: must be 'coeff' with data, 'neuron' without.")
        if name is not None and (not isinstance(name, str) or not name or "#" in name):
            raise LangError(f"{place}: name={name!r}: must be a string without '#'.")
        self.name, self.ttype, self.dtype = name, ttype, dtype
        self.buffer = None if data is None else _data(place, data, dtype, shape)
        self.shape = _sizes(place, shape) if self.buffer is None else tuple(self.buffer.shape)
        self.axis = 1
        """The axis along which a list of scales lies."""
        self.owner: object | None = None
        try:
            self.parameters = quantization_of(dtype, scale, zero_point)
        except LangError as err:
            raise LangError(f"{place}: {err}") from None

    @property
    def label(self) -> str:
        """The name in quotes, for messages."""
        return "without a name" if self.name is None else repr(self.name)

    @property
    def scale(self) -> float | tuple[float, ...] | None:
        """The scale, one for each channel if there are several; None for a tensor without parameters."""
        return self.parameters.scale

    @property
    def zero_point(self) -> int | tuple[int, ...] | None:
        """The zero point, one for each channel if there are several; None for a tensor without parameters."""
        return self.parameters.zero_point

    @property
    def is_quantized(self) -> bool:
        """True once a scale or a zero point is set."""
        return bool(self.parameters)

    def quantization(self, scale: Numbers = None, zero_point: Numbers = None) -> None:
        """Set parameters that are not set yet; a different value raises LangError, which shows both."""
        given = quantization_of(self.dtype, scale, zero_point)
        merged = self.parameters.merged(given)
        if merged is None:
            raise LangError(f"tensor {self.label} has {self.parameters}; {given} contradicts it: must be the same.")
        self.parameters = merged

    def stored(self, parameters: Quantization | None = None) -> Stored:
        """Return the tensor of the IR."""
        assert self.name is not None
        own = self.parameters if parameters is None else parameters
        known = own.qparams(self.dtype, self.axis) if own else None
        data = None if self.buffer is None else torch.from_numpy(self.buffer).to(container(DTYPES[self.dtype]))
        return Stored(self.name, self.shape, DTYPES[self.dtype], data, known)

    def __repr__(self) -> str:
        own = f", {self.parameters}" if self.parameters else ""
        return f"Tensor({list(self.shape)}, name={self.name!r}, dtype={self.dtype!r}{own})"


def _sizes(place: str, shape: Sequence[int] | None) -> tuple[int, ...]:
    if shape is None:
        raise LangError(f"{place}: shape is missing: must be a list of sizes.")
    sizes = tuple(shape)
    if any(isinstance(size, bool) or not isinstance(size, int) or (size < 1 and size != FREE) for size in sizes):
        raise LangError(f"{place}: shape={list(sizes)}: every size must be a whole number of at least 1.")
    return sizes


def _data(place: str, data: Any, dtype: str, shape: Sequence[int] | None) -> np.ndarray[Any, Any]:
    values = data.detach().cpu().numpy() if isinstance(data, torch.Tensor) else np.asarray(data)
    if values.dtype == np.float32 and dtype == "float16":
        values = values.astype(np.float16)
    if str(values.dtype) != dtype:
        raise LangError(f"{place}: data of {values.dtype}: must be of dtype={dtype}.")
    sizes = tuple(values.shape) if shape is None else _sizes(place, shape)
    if math.prod(sizes) != values.size or values.size == 0:
        raise LangError(f"{place}: {values.size} numbers of data: shape {list(sizes)} needs {math.prod(sizes)}.")
    if values.dtype.kind == "f" and bool(np.isnan(values).any()):
        raise LangError(f"{place}: data has NaN: must be numbers.")
    # a copy: the caller's array may change later
    return np.array(values.reshape(sizes), order="C")
