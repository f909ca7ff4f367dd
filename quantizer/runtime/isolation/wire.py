"""Serializes arguments and results of functions as plain data, between the judge and the plugin process.

A value is JSON with a tag: numbers and text directly, then tuples, tables, tensors by their index among the arrays, and
our own records by the name of their class. Specs, schemes and platforms cross once, from the judge; later messages
refer to them by number. Any other value stays in its process: only a handle for it crosses. The judge never evaluates,
imports or unpickles parts of a message: its classes come from a closed table.
"""

from __future__ import annotations

import dataclasses
import importlib
import typing
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from typing import Any

import numpy as np
import torch
from torch import Tensor

from quantizer.core.case import TilePlan
from quantizer.core.dtypes import DType
from quantizer.core.errors import FormatError, FunctionError
from quantizer.core.expressions import Expression, parse, parse_axes
from quantizer.core.model import Model
from quantizer.core.real_expressions import RealExpression, parse_real
from quantizer.ir.graph import Tensor as GraphTensor
from quantizer.numerics.qparams import Parameters, Staged
from quantizer.numerics.request import Request
from quantizer.runtime.engines.frames import Array
from quantizer.runtime.isolation.fields import strange
from quantizer.tiling.windows import Tile

ROOTS: tuple[type, ...] = (Request, Parameters, Staged, Tile, TilePlan, GraphTensor, DType)
"""Records that a function takes or returns, and records in their fields."""
DEEPEST = 40
"""The largest depth of nested records, tables and lists."""
PLAIN = frozenset((bool, int, float, str, type(None)))
TYPES: Mapping[str, torch.dtype] = {
    str(kind).removeprefix("torch."): kind
    for kind in (
        torch.bool,
        torch.uint8,
        torch.int8,
        torch.int16,
        torch.int32,
        torch.int64,
        torch.uint16,
        torch.uint32,
        torch.uint64,
        torch.float16,
        torch.bfloat16,
        torch.float32,
        torch.float64,
    )
}
"""Tensor types that messages can hold, by name."""


def plain(value: Tensor) -> Tensor:
    """Return a tensor with the contents of its memory: a foreign subclass may return other values when it is read.

    FunctionError for a class that replaces torch's computations: such a tensor may have no memory.
    """
    kind = type(value)
    if kind is Tensor:
        return value
    if kind.__torch_dispatch__ is not Tensor.__torch_dispatch__:
        raise FunctionError(
            f"a tensor of class {kind.__name__}, which computes in place of torch. Return a plain tensor."
        )
    with torch._C.DisableTorchFunctionSubclass():
        return Tensor.as_subclass(value, Tensor)


class Opaque:
    """A value that stays in the process of a plugin. Its subclass has the name of its type."""

    def __init__(self, handle: tuple[int, int]) -> None:
        self.handle = handle


@cache
def records() -> Mapping[str, tuple[type, tuple[str, ...]]]:
    """Return the dataclasses that cross and their fields, by name: ROOTS, their fields' and their subclasses."""
    found: dict[str, type] = {}
    left: list[Any] = [*ROOTS]
    while left:
        item = left.pop()
        left += typing.get_args(item)
        if isinstance(item, type) and dataclasses.is_dataclass(item) and item.__name__ not in found:
            found[item.__name__] = item
            left += [*typing.get_type_hints(item).values(), *item.__subclasses__()]
    # expressions cross as text, because a spec holds them
    found.pop(Expression.__name__, None)
    return {name: (kind, tuple(item.name for item in dataclasses.fields(kind))) for name, kind in found.items()}


class Writer:
    """Turns values into plain data and arrays.

    name: returns the number of a spec, scheme or platform; opaque: returns the handle of anything else, by its type's
    name.
    """

    def __init__(self, name: Callable[[Model], int | None], opaque: Callable[[Any], tuple[int, int]]) -> None:
        self.arrays: list[Array] = []
        self._name = name
        self._opaque = opaque

    def write(self, value: Any, depth: int = 0) -> Any:
        """Return *value* as JSON holds it; FunctionError if it is nested too deep."""
        kind = type(value)
        if kind in PLAIN:
            return value
        # the commonest kinds first: a call has many numbers and tensors
        if kind is Tensor:
            return self._tensor(value)
        if depth > DEEPEST:
            raise FunctionError(f"a value of more than {DEEPEST} levels. Hand plain data.")
        known = records().get(kind.__name__)
        # exactly our class: a subclass or a foreign class of the same name is another thing
        if known is not None and kind is known[0]:
            return {"r": kind.__name__, "f": self._each([getattr(value, name) for name in known[1]], depth)}
        if kind in (list, tuple):
            return {"l" if kind is list else "t": self._each(value, depth)}
        return self._other(value, depth)

    def _each(self, values: Sequence[Any], depth: int) -> list[Any]:
        return [value if type(value) in PLAIN else self.write(value, depth + 1) for value in values]

    def _other(self, value: Any, depth: int) -> Any:
        """Return a value of a class with subclasses; anything unknown stays here, and a handle for it is returned."""
        if isinstance(value, Tensor):
            return self._tensor(value)
        if isinstance(value, Mapping):
            return {"m": [self._each(pair, depth) for pair in value.items()]}
        if isinstance(value, Model) and (number := self._name(value)) is not None:
            return {"n": number}
        if isinstance(value, Opaque):
            return {"o": [*value.handle]}
        if isinstance(value, np.integer | np.floating | np.bool_):
            return value.item()
        return {"o": [*self._opaque(value)], "c": type(value).__name__}

    def _tensor(self, value: Tensor) -> Any:
        value = plain(value)
        name = str(value.dtype).removeprefix("torch.")
        if value.layout is not torch.strided or value.device.type != "cpu":
            raise FunctionError(
                f"a {value.layout} tensor of {value.dtype} on {value.device}: tensors are dense, on the CPU."
            )
        if name not in TYPES:
            raise FunctionError(f"a tensor of {value.dtype}: must be one of {', '.join(TYPES)}.")
        held = value.detach()
        # numpy has no bfloat16: its bits cross as int16
        held = held.view(torch.int16) if held.dtype is torch.bfloat16 else held
        # torch may hold a negation lazily, which numpy does not see
        self.arrays.append(held.resolve_neg().contiguous().numpy())
        return {"a": len(self.arrays) - 1, "k": name}


class Reader:
    """Turns plain data and arrays back into values, in new memory.

    named: returns the spec, scheme or platform of a number; opaque: returns the object of a handle; checked: whether
    the fields of records are checked. A plugin's records are; the judge's were checked when they were created.
    """

    def __init__(
        self,
        arrays: typing.Sequence[Array],
        named: Callable[[int], Model],
        opaque: Callable[[tuple[int, int], str], Any],
        *,
        checked: bool = True,
    ) -> None:
        self._arrays = arrays
        self._named = named
        self._opaque = opaque
        self._record = _checked if checked else _rebuilt
        self.tensors: list[tuple[Tensor, Array]] = []
        """Every tensor that was read, with an array of the same values."""

    def read(self, data: Any) -> Any:
        """Return the value of *data*; FormatError if it is not a value."""
        try:
            return data if type(data) in PLAIN else self._tagged(data, 1)
        except (KeyError, IndexError, AttributeError, TypeError, ValueError, RuntimeError) as err:
            raise FormatError(f"an invalid value: {type(err).__name__}") from None

    def _tagged(self, data: Any, depth: int) -> Any:
        if type(data) is not dict or depth > DEEPEST + 2:
            raise FormatError("an invalid value")
        if "a" in data:
            return self._tensor(data["a"], data["k"])
        if "r" in data:
            kind, fields = records()[data["r"]]
            return self._record(kind, dict(zip(fields, self._each(data["f"], depth), strict=True)))
        if "m" in data:
            return dict(self._each(pair, depth) for pair in data["m"])
        if "t" in data:
            return tuple(self._each(data["t"], depth))
        if "l" in data:
            return self._each(data["l"], depth)
        if "n" in data:
            return self._named(data["n"])
        generation, number = data["o"]
        return self._opaque((generation, number), data.get("c", ""))

    def _each(self, items: Any, depth: int) -> list[Any]:
        return [item if type(item) in PLAIN else self._tagged(item, depth + 1) for item in items]

    def _tensor(self, place: int, name: str) -> Tensor:
        held, kind = self._arrays[place], TYPES[name]
        view = torch.from_numpy(held)
        if view.dtype is not (torch.int16 if kind is torch.bfloat16 else kind):
            raise FormatError(f"a tensor of {name} that holds {held.dtype}")
        # a copy: *held* keeps the values, to see later whether a function wrote into the tensor
        made = view.clone().view(kind)
        self.tensors.append((made, held))
        return made


def _checked(kind: type, values: Mapping[str, Any]) -> Any:
    """Return a record; FunctionError if a field has another type than its class declares."""
    if (wrong := strange(kind, values)) is not None:
        raise FunctionError(wrong)
    return kind(**values)


def _rebuilt(kind: type, values: Mapping[str, Any]) -> Any:
    """Return a record of fields that were checked before."""
    # without __init__, whose checks ran when the judge made the record
    made: Any = object.__new__(kind)
    made.__dict__.update(values)
    return made


def write_model(value: Any) -> Any:
    """Return a spec, scheme or platform, or a part of one, as plain data."""
    if isinstance(value, Model):
        kind = type(value)
        fields = {name: write_model(getattr(value, name)) for name in kind.model_fields}
        return {"module": kind.__module__, "class": kind.__qualname__, "fields": fields}
    if isinstance(value, Expression):
        return {"expression": value.text}
    if isinstance(value, RealExpression):
        return {"real": value.text}
    if isinstance(value, dict):
        return {"table": [[key, write_model(item)] for key, item in value.items()]}
    if isinstance(value, list | tuple):
        return {"list" if isinstance(value, list) else "tuple": [write_model(item) for item in value]}
    return value


def read_model(data: Any) -> Any:
    """Return the value that `write_model` wrote. Only the plugin process uses it; the judge reads no models."""
    if not isinstance(data, dict):
        return data
    if "class" in data:
        kind: type[Model] = getattr(importlib.import_module(data["module"]), data["class"])
        return kind.model_construct(**{name: read_model(item) for name, item in data["fields"].items()})
    if "expression" in data:
        text: str = data["expression"]
        return parse_axes(text) if text.startswith("*") else parse(text)
    if "real" in data:
        return parse_real(data["real"])
    if "table" in data:
        return {key: read_model(item) for key, item in data["table"]}
    items = [read_model(item) for item in data["list" if "list" in data else "tuple"]]
    return items if "list" in data else tuple(items)
