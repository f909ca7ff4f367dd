"""Bitwise equality of tensors and of nested containers of tensors."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from typing import Any

from torch import Tensor


def bitwise_equal(one: Any, other: Any) -> bool:
    """Return whether two values are equal: tensors by type, shape, elements (NaN equals NaN), containers by member."""
    if one is other:
        return True
    if isinstance(one, Tensor) and isinstance(other, Tensor):
        return one.dtype == other.dtype and one.shape == other.shape and _same_elements(one, other)
    if isinstance(one, Mapping) and isinstance(other, Mapping):
        return one.keys() == other.keys() and all(bitwise_equal(one[name], other[name]) for name in one)
    if isinstance(one, list | tuple) and isinstance(other, list | tuple):
        return len(one) == len(other) and all(map(bitwise_equal, one, other))
    if is_dataclass(one) and type(one) is type(other):
        return all(bitwise_equal(getattr(one, item.name), getattr(other, item.name)) for item in fields(one))
    return bool(one == other)


def _same_elements(one: Tensor, other: Tensor) -> bool:
    if one.equal(other) or not one.is_floating_point():
        return one.equal(other)
    return bool(((one == other) | (one.isnan() & other.isnan())).all())
