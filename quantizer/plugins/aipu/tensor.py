"""The tensor that an operator plugin sees: values, and Compass's quantization fields."""

from __future__ import annotations

import copy
from typing import Any, Self

import numpy as np
import torch
from torch import Tensor as TorchTensor

from quantizer.plugins.aipu.dtypes import Dtype, nptype2dtype, torch_type2dtype, working_type


class TensorShape(tuple[int, ...]):
    """A tensor's shape as layers of AIPUBuilder read it: a tuple with `dim` and `size`."""

    __slots__ = ()

    def clone(self) -> TensorShape:
        """Return an equal shape."""
        return TensorShape(self)

    def dim(self) -> int:
        """Return the number of axes."""
        return len(self)

    def size(self) -> int:
        """Return the number of elements."""
        return int(np.prod(self, dtype=np.int64))


_FIELDS: dict[str, Any] = {
    "_scale": 1.0,
    "_zerop": 0,
    "qbits": None,
    "qmin": None,
    "qmax": None,
    "qinvariant": False,
    "dtype": None,
    "block_size": None,
    "key_axis": None,
    "key_axis_c": 0,
    "key_axis_g": 1,
    "key_axis_bs": None,
    "ir_shape": None,
    "ir_dtype": None,
    "ir_range": None,
    "pnode": None,
    "_min": 0.0,
    "_max": 0.0,
    "min_key_axis": None,
    "max_key_axis": None,
    "extrema_min": float("inf"),
    "extrema_max": float("-inf"),
    "extrema_min_key_axis": None,
    "extrema_max_key_axis": None,
    "running_min": 0.0,
    "running_max": 0.0,
    "running_mean": 0.0,
    "running_std": 0.0,
    "running_mad": 0.0,
    "running_histc": None,
    "running_min_key_axis": None,
    "running_max_key_axis": None,
    "running_mean_key_axis": None,
    "running_std_key_axis": None,
    "running_mad_key_axis": None,
    "running_histc_key_axis": None,
    "similarity": None,
    "mse": None,
    "debug_flag": 0,
    "need_deleted": False,
    "assigned_device": "cpu",
}
"""Field -> its initial value. Any other name raises AttributeError, because a misspelt field would have no effect."""


class PyTensor:
    """A named tensor: `betensor` holds values or codes, and the fields say what codes mean.

    In Compass's convention, `code = round(scale * value - zerop)`, so scale is codes per unit, and zerop is the negated
    zero point. `scale`, `zerop`, `min` and `max` are always read as flat tensors; None means undecided.
    """

    __slots__ = (*_FIELDS, "attrs", "betensor", "name")

    name: str
    betensor: TorchTensor
    attrs: dict[str, Any]
    qbits: int | None
    qmin: int | None
    qmax: int | None
    qinvariant: bool | None
    dtype: Dtype | None
    pnode: Any
    key_axis: int | None
    key_axis_c: int | None
    ir_shape: TensorShape | None
    ir_dtype: Dtype | None
    min_key_axis: TorchTensor | None
    max_key_axis: TorchTensor | None
    extrema_min: Any
    extrema_max: Any
    extrema_min_key_axis: TorchTensor | None
    extrema_max_key_axis: TorchTensor | None
    _scale: TorchTensor | None
    _zerop: TorchTensor | None
    _min: TorchTensor | None
    _max: TorchTensor | None

    def __init__(self, name: str, content: Any = None, dtype: Dtype | None = None) -> None:
        """*content*: a TensorShape (zeros), a numpy array, a torch tensor, numbers, or None."""
        for field, value in _FIELDS.items():
            if not field.startswith("_"):
                # `_scale` and the like are set by their properties below, which make tensors of them
                object.__setattr__(self, field, value)
        self.name = str(name)
        self.attrs = {}
        self.scale, self.zerop, self.min, self.max = 1.0, 0, 0.0, 0.0
        self.betensor, found = _content(content, dtype)
        self.dtype = dtype or found
        self.ir_shape = TensorShape(self.betensor.shape)

    def __repr__(self) -> str:
        formats = f"dtype={self.dtype}, scale={self.scale}, zerop={self.zerop}"
        return f"PyTensor({self.name!r}, shape={list(self.shape)}, {formats})"

    @property
    def shape(self) -> torch.Size:
        """Shape of the values."""
        return self.betensor.shape

    @property
    def device(self) -> torch.device:
        """The torch device of the values."""
        return self.betensor.device

    @property
    def scale(self) -> TorchTensor | None:
        """Codes per unit, float32, flat; None while undecided."""
        return self._scale

    @scale.setter
    def scale(self, value: Any) -> None:
        self._scale = _flat(value, torch.float32)

    @property
    def zerop(self) -> TorchTensor | None:
        """The negated zero point, int32, flat; None while undecided."""
        return self._zerop

    @zerop.setter
    def zerop(self, value: Any) -> None:
        self._zerop = _flat(value, torch.int32)

    @property
    def min(self) -> TorchTensor | None:
        """Smallest calibrated value, never above 0; float64, flat."""
        return self._min

    @min.setter  # noqa: A003 - as in Compass
    def min(self, value: Any) -> None:
        self._min = _flat(value, torch.float64)

    @property
    def max(self) -> TorchTensor | None:
        """Largest calibrated value, never below 0; float64, flat."""
        return self._max

    @max.setter  # noqa: A003
    def max(self, value: Any) -> None:
        self._max = _flat(value, torch.float64)

    def key_axis_broadcast_shape(self) -> list[int]:
        """Return the shape under which per-channel numbers broadcast against the values."""
        if self.key_axis is None or not self.ir_shape:
            return [-1]
        axis = self.key_axis % len(self.ir_shape)
        return [-1 if i == axis else 1 for i in range(len(self.ir_shape))]

    @property
    def broadcast_scale(self) -> TorchTensor | None:
        """`scale` shaped to broadcast against the values."""
        return None if self._scale is None else self._broadcast(self._scale)

    @property
    def broadcast_zerop(self) -> TorchTensor | None:
        """`zerop` shaped to broadcast against the values."""
        return None if self._zerop is None else self._broadcast(self._zerop)

    def _broadcast(self, numbers: TorchTensor) -> TorchTensor:
        return numbers if numbers.numel() == 1 else numbers.reshape(self.key_axis_broadcast_shape())

    def is_perchannel_scales(self) -> bool:
        """Return whether there is more than one scale."""
        return self._scale is not None and self._scale.numel() > 1

    def is_perchannel_quantization(self) -> bool:
        """Return whether the numbers belong to slices along `key_axis`."""
        return self.key_axis is not None

    def is_qinvariant(self) -> bool:
        """Return whether the codes are the values: they are marked so, and have scale 1 and zero point 0."""
        if self._scale is None or self._zerop is None:
            return False
        return bool(self.qinvariant) and bool((self._scale == 1).all() and (self._zerop == 0).all())

    def set_qinvariant(self, qinvariant: bool | None = None) -> None:
        """Mark the codes as values or not; without an argument, as values if the scale is 1 and the zero point 0."""
        if qinvariant is not None:
            self.qinvariant = qinvariant
        elif self._scale is not None and self._zerop is not None:
            self.qinvariant = bool((self._scale == 1).all() and (self._zerop == 0).all()) or self.qinvariant

    def clone(self, name: str | None = None) -> Self:
        """Return an independent copy; the producer is not copied."""
        other = type(self)(name or f"{self.name}_clone", self.betensor, self.dtype)
        for field in _FIELDS:
            value = None if field == "pnode" else getattr(self, field)
            object.__setattr__(other, field, value.clone() if isinstance(value, TorchTensor) else copy.copy(value))
        other.attrs = copy.deepcopy(self.attrs)
        return other


Tensor = PyTensor
"""The name in the documentation's example; the original only has `PyTensor`."""


def _flat(value: Any, kind: torch.dtype) -> TorchTensor | None:
    if value is None:
        return None
    if not isinstance(value, TorchTensor):
        items = [float(item) for item in value] if isinstance(value, list | tuple) else value
        value = torch.from_numpy(np.array(items, dtype=np.float64))
    flat: TorchTensor = value.detach().reshape(-1).to(kind, copy=True)
    return flat


def _content(content: Any, dtype: Dtype | None) -> tuple[TorchTensor, Dtype | None]:
    """Return the values and their format; numpy's integers get the type that arithmetic needs."""
    if content is None:
        return torch.zeros(0), None
    if isinstance(content, TensorShape):
        return torch.zeros(tuple(content), dtype=working_type(dtype) if dtype else None), dtype
    if isinstance(content, TorchTensor):
        return content.detach().clone(), torch_type2dtype(content.dtype)
    array = np.asarray(content)
    if array.dtype == bool:
        return torch.from_numpy(array.astype(np.int32)), Dtype.BOOL
    found = nptype2dtype(array.dtype)
    # by way of int64 and float64, because torch has no arithmetic for some of numpy's types
    wide = array.astype(np.int64) if array.dtype.kind in "iu" else array.astype(np.float64)
    return torch.from_numpy(np.array(wide)).to(working_type(dtype or found)), found
