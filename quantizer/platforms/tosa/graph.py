"""Builds graphs of TOSA operators with the serializer of tosa-tools; checks RESCALE by the specification's rules."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
import tosa_serializer as ts

from quantizer.core.dtypes import DType
from quantizer.core.errors import EngineError, RefusedError
from quantizer.core.platforms import computed_activation
from quantizer.numerics.activations import activate_codes
from quantizer.numerics.qparams import Parameters, QParams
from quantizer.runtime.engines.frames import Array, Job
from quantizer.runtime.engines.lowering import Lowered

INT8, INT16, INT32, INT48 = ts.DType.INT8, ts.DType.INT16, ts.DType.INT32, ts.DType.INT48
SHAPE = ts.DType.SHAPE
KINDS = {8: INT8, 16: INT16}
# the serializer takes numpy arrays: narrower and odd widths are held in the next larger type
STORAGE = {
    ts.DType.INT4: np.int8,
    INT8: np.int8,
    INT16: np.int16,
    INT32: np.int32,
    INT48: np.int64,
    ts.DType.SHAPE: np.int64,
}
ONE = (1 << 30, 30)
"""A multiplier and a shift with no effect."""
# REQUIRE(shift >= 2 && shift <= 62) of apply_scale_32
SHIFTS = range(2, 63)
SIGNED = (False, False)
"""The flags of a RESCALE: neither side is unsigned."""
GLOBAL = (False,)
"""The attribute local_bound of convolutions, which is never set."""
MAX_RANK = 6
"""The largest number of axes of a tensor, in the specification's largest level."""
UNPREDICTABLE, FAILED = 1, 2
"""Status of a run of the reference model, returned after its outputs."""


@dataclass(frozen=True)
class Value:
    """A tensor of the graph."""

    name: str
    shape: tuple[int, ...]
    kind: Any


@dataclass(frozen=True)
class Fed:
    """An input of a graph."""

    value: Value


@dataclass(frozen=True)
class Held:
    """A constant of a graph."""

    value: Value
    numbers: Array


@dataclass(frozen=True)
class Applied:
    """One operator of a graph, and its result."""

    value: Value
    op: Any
    inputs: tuple[str, ...]
    attributes: tuple[Any, ...]


Record = Fed | Held | Applied


@dataclass(frozen=True)
class Written(Job):
    """A job, and the graph from which its model was written."""

    records: tuple[Record, ...] = ()
    output: str = ""
    """The name of the result."""


def _check_rank(shape: Sequence[int]) -> None:
    if len(shape) > MAX_RANK:
        raise RefusedError(f"a TOSA tensor has at most {MAX_RANK} axes, got shape {list(shape)}")


class TosaGraph:
    """A graph of one basic block. Inputs are fed in the order in which they were added; constants are part of it."""

    def __init__(self) -> None:
        self._made = ts.TosaSerializer()
        self._feeds: dict[str, Array] = {}
        self._numbers: dict[tuple[object, ...], Value] = {}
        self._operands: dict[str, str] = {}
        self._records: list[Record] = []

    def feed(self, codes: Array, kind: Any, operand: str = "x") -> Value:
        """Add an input that holds an operand; RefusedError for one without elements, or of too many axes."""
        _check_rank(codes.shape)
        if 0 in codes.shape:
            raise RefusedError(f"a TOSA tensor has at least one element along each axis, got shape {list(codes.shape)}")
        name, values = f"input{len(self._feeds)}", np.asarray(codes.astype(STORAGE[kind]), order="C")
        self._made.addInputTensor(ts.TosaSerializerTensor(name, list(values.shape), kind, None, f"{name}.npy"))
        self._feeds[name], self._operands[name] = values, operand
        return self._recorded(Fed(Value(name, values.shape, kind)))

    def _recorded(self, record: Record) -> Value:
        self._records.append(record)
        return record.value

    def const(self, values: Array | Sequence[int], kind: Any) -> Value:
        """Add a constant; a small constant that the graph already holds is reused."""
        if isinstance(values, np.ndarray):
            return self._const(values, kind)
        # zero points and multipliers repeat; larger arrays are not worth a comparison
        key = (kind, *values)
        if key not in self._numbers:
            self._numbers[key] = self._const(np.asarray(values), kind)
        return self._numbers[key]

    def _const(self, values: Array, kind: Any) -> Value:
        found = np.asarray(values, dtype=STORAGE[kind], order="C")
        made = self._made.addConst(list(found.shape), kind, found)
        return self._recorded(Held(Value(made.name, found.shape, kind), found))

    def sizes(self, values: Sequence[int]) -> Value:
        """Add a constant shape."""
        return self._const(np.asarray(values, dtype=np.int64), SHAPE)

    def op(self, op: Any, inputs: Sequence[Value], shape: Sequence[int], kind: Any, *attributes: Any) -> Value:
        """Add one operator; *attributes* in the order of the serializer, which names them after the operator."""
        held = ts.TosaSerializerAttribute()
        getattr(held, _attribute(op))(*attributes)
        sizes = [int(size) for size in shape]
        _check_rank(sizes)
        made = self._made.addIntermediate(sizes, kind)
        names = [value.name for value in inputs]
        self._made.addOperator(op, names, [made.name], held)
        return self._recorded(Applied(Value(made.name, tuple(sizes), kind), op, tuple(names), attributes))

    def rescale(
        self,
        value: Value,
        kind: Any,
        mantissa: Sequence[int],
        shift: Sequence[int],
        *,
        zeros: tuple[int, int] = (0, 0),
        double: bool = False,
    ) -> Value:
        """Multiply by mantissa * 2**-shift (one each, or per channel of the last axis) between two zero points.

        Sums of 48 bits take 16-bit multipliers. RefusedError for shifts that RESCALE does not have, and for zero points
        of formats without zero points.
        """
        if any(place not in SHIFTS for place in shift):
            raise RefusedError(
                f"RESCALE shifts right by 2 to 62 places, not by {min(shift)}..{max(shift)}: ratio too large"
            )
        for zero, held in zip(zeros, (value.kind, kind), strict=True):
            # of the formats here only int8 has zero points
            if zero and held != INT8:
                raise RefusedError(f"RESCALE takes no zero point of {held.name} codes, got {zero}")
        # scale32 is false for 48 bits: such sums take a 16-bit multiplier and one rounding
        narrow = value.kind == INT48
        operands = [
            value,
            self.const(mantissa, INT16 if narrow else INT32),
            self.const(shift, INT8),
            self.const(zeros[:1], value.kind),
            self.const(zeros[1:], kind),
        ]
        mode = ts.RoundingMode.DOUBLE_ROUND if double and not narrow else ts.RoundingMode.SINGLE_ROUND
        flags = (not narrow, mode, len(mantissa) > 1, *SIGNED)
        return self.op(ts.Op.RESCALE, operands, value.shape, kind, *flags)

    def clamp(self, value: Value, low: int, high: int) -> Value:
        """Clamp codes."""
        # CLAMP's attributes are bytes in the type of the codes
        ends = [list(np.asarray([end], dtype=STORAGE[value.kind]).tobytes()) for end in (low, high)]
        return self.op(ts.Op.CLAMP, [value], value.shape, value.kind, *ends, PROPAGATE)

    def reshape(self, value: Value, shape: Sequence[int]) -> Value:
        """Return the same elements in the same order; *value* itself if it has that shape."""
        if tuple(shape) == value.shape:
            return value
        return self.op(ts.Op.RESHAPE, [value, self.sizes(shape)], shape, value.kind)

    def transpose(self, value: Value, perm: Sequence[int]) -> Value:
        """Return *value* with axis perm[i] of it as axis i; without axes, which TRANSPOSE refuses, *value* itself."""
        if not perm:
            return value
        return self.op(ts.Op.TRANSPOSE, [value], [value.shape[place] for place in perm], value.kind, list(perm))

    def slice(self, value: Value, start: Sequence[int], size: Sequence[int]) -> Value:
        """Return a box; *value* itself if the box covers all of it."""
        if tuple(size) == value.shape:
            return value
        return self.op(ts.Op.SLICE, [value, self.sizes(start), self.sizes(size)], size, value.kind)

    def concat(self, values: Sequence[Value], axis: int) -> Value:
        """Return the concatenation of *values*; a single value itself."""
        if len(values) == 1:
            return values[0]
        shape = list(values[0].shape)
        shape[axis] = sum(value.shape[axis] for value in values)
        return self.op(ts.Op.CONCAT, values, shape, values[0].kind, axis)

    def activate(self, value: Value, parameters: Parameters) -> Value:
        """Return codes after the fused activation, which is a CLAMP."""
        name, platform, output = parameters.activation, parameters.platform, parameters.outputs["y"]
        if name == "none":
            return value
        ends = torch.tensor([output.qmin, output.qmax])
        # the activation of the smallest and of the largest code are the bounds of the CLAMP
        low, high = activate_codes(ends, output, computed_activation(platform, name), parameters).tolist()
        return self.clamp(value, low, high)

    def lowered(self, value: Value, axes: Sequence[int] | None = None) -> Lowered:
        """Return the job whose output is *value*, transposed to the order *axes*."""
        return Lowered(self.job([value]), functools.partial(_result, axes), self._operands, reshapes=True)

    def job(self, values: Sequence[Value]) -> Job:
        """Return the job whose outputs are *values*."""
        for value in values:
            self._made.addOutputTensor(value_tensor(value))
        return Written(self._made.serialize(), self._feeds, {}, None, tuple(self._records), values[-1].name)


PROPAGATE = ts.NanPropagationMode.PROPAGATE


def value_tensor(value: Value) -> Any:
    """Return *value* as the serializer's tensor."""
    return ts.TosaSerializerTensor(value.name, list(value.shape), value.kind)


def kind_of(params: QParams) -> Any:
    """Return the format of activation codes; RefusedError for one that TOSA does not have."""
    return _kind(params.dtype)


def _kind(dtype: DType) -> Any:
    if dtype.kind != "int" or dtype.bits not in KINDS:
        raise RefusedError(f"TOSA has activations of int8 and int16, not of {dtype}")
    return KINDS[dtype.bits]


@functools.cache
def _attribute(op: Any) -> str:
    """Return the serializer's name of an operator's attributes: CONV2D has Conv2dAttribute."""
    name = str(op.name)
    words = {"ARGMAX": "ArgMax", "MATMUL": "MatMul", "MAX_POOL2D": "MaxPool2d", "AVG_POOL2D": "AvgPool2d"}
    return words.get(name, "".join(part.capitalize() for part in name.split("_"))) + "Attribute"


def _result(axes: Sequence[int] | None, outputs: tuple[Array, ...]) -> Array:
    """Return the only output.

    The reference model also returns a status, last: whether the specification defines the result.
    """
    found, status = outputs[0], int(outputs[-1]) if len(outputs) > 1 else 0
    if status == UNPREDICTABLE:
        raise RefusedError(
            "the TOSA specification leaves the result open: an operand is outside what an operator takes"
        )
    if status == FAILED:
        raise EngineError("the reference model gave the status TOSA_ERROR")
    return found if axes is None else np.transpose(found, axes)
