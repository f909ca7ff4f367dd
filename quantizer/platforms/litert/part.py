"""Shared by the lowerings of LiteRT's operators: tensors with parameters, and the order of axes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np
from torch import Tensor

from quantizer.core.errors import RefusedError
from quantizer.numerics.qparams import Parameters, QParams
from quantizer.platforms.litert.model import Op, TensorDef, model
from quantizer.runtime.engines.frames import Array, Job
from quantizer.runtime.engines.lowering import Lowered
from quantizer.runtime.engines.protocol import Call

ACTIVATIONS = {"none": 0, "relu": 1, "relu6": 3}
"""Fused activation -> ActivationFunctionType of the schema."""
# float32, because LiteRT divides 6 by the scale in float32
SIX = np.float32(6.0)
SAME, VALID = 0, 1
"""Padding of the schema."""
# int4 codes are packed only in constants; a feed of them holds one code to a byte
FORMATS = {"int4": "int8", "int8": "int8", "int16": "int16"}
"""Format of codes -> the numpy type that is fed."""


class Lower(Protocol):
    """Lowers one operator: on codes if there are *parameters*, else on float32 operands. *variant*: the resolver.

    Raises RefusedError if LiteRT cannot express the case.
    """

    def __call__(self, call: Call, codes: Mapping[str, Tensor], parameters: Parameters | None, variant: str) -> Lowered:
        """Return the model and its inputs."""


@dataclass
class Graph:
    """A model under construction: operators refer to tensors by index."""

    tensors: list[TensorDef] = field(default_factory=list)
    ops: list[Op] = field(default_factory=list)
    feeds: dict[str, Array] = field(default_factory=dict)

    def feed(self, name: str, values: Array, params: QParams | None) -> int:
        """Return the index of a new input of the model: *values* in the format of *params*, else in float32."""
        kind = "float32" if params is None else FORMATS[format_of(params)]
        self.feeds[name] = np.asarray(values, kind, order="C")
        return self.add(activation(name, values.shape, params))

    def add(self, tensor: TensorDef) -> int:
        """Add *tensor* and return its index."""
        self.tensors.append(tensor)
        return len(self.tensors) - 1

    def apply(
        self, code: str, options_type: str | None, options: Mapping[str, Any], inputs: Sequence[int], output: TensorDef
    ) -> int:
        """Add an operator and return the index of its output."""
        place = self.add(output)
        self.ops.append(Op(code, options_type, options, tuple(inputs), (place,)))
        return place

    def job(self, output: int, variant: str) -> Job:
        """Return the job of the model whose result is at *output*."""
        return Written(model(self.ops, self.tensors, [output]), self.feeds, {"resolver": variant}, None, self, output)


@dataclass(frozen=True)
class Written(Job):
    """A job, and the graph from which its model was written."""

    graph: Graph = field(default_factory=Graph)
    output: int = 0
    """The index of the result."""


def fused(call: Call, output: QParams | None) -> int:
    """Return the number of the fused activation; RefusedError if 6 lies beyond 32-bit codes, as LiteRT refuses it."""
    # CalculateActivationRangeQuantized converts 6 / scale to int32 and refuses an overflow
    if call.activation == "relu6" and output is not None and SIX / np.float32(float(output.scale)) >= np.float32(2**31):
        raise RefusedError("LiteRT refuses a relu6 whose 6 is beyond 2**31 steps of the output")
    return ACTIVATIONS[call.activation]


def format_of(params: QParams) -> str:
    """Return the name of the format of codes; RefusedError for one that LiteRT's kernels do not take."""
    name = params.dtype.name
    if name not in FORMATS:
        raise RefusedError(f"LiteRT's kernels take no codes of format {name}")
    return name


def activation(name: str, shape: Sequence[int], params: QParams | None) -> TensorDef:
    """Return a tensor with one scale and one zero point; a float32 one without *params*."""
    if params is None:
        return TensorDef(name, tuple(int(n) for n in shape), "float32")
    scale, zero = float(params.scale), int(params.zero_point)
    return TensorDef(name, tuple(int(n) for n in shape), format_of(params), (scale,), (zero,))


def channels_first(outputs: tuple[Array, ...]) -> Array:
    """Return the first output with its last axis as its second."""
    return np.moveaxis(outputs[0], -1, 1)


def input_of(parameters: Parameters | None, name: str) -> QParams | None:
    """Return the parameters of an operand; None in float32, and for an operand of real numbers or of indices."""
    return None if parameters is None else parameters.inputs.get(name)


def output_of(parameters: Parameters | None) -> QParams | None:
    """Return the parameters of the output; None in float32."""
    return None if parameters is None else parameters.outputs["y"]


def integers(name: str, values: Sequence[int]) -> TensorDef:
    """Return a constant of int32 numbers, such as axes or sizes."""
    return TensorDef(name, (len(values),), "int32", data=np.array(values, np.int32))
