"""Random quantized ONNX graphs of 4, 8 and 16 bits, made of a seed alone: QuantizeLinear and DequantizeLinear around each operator.

A graph is drawn in float first; ONNX Runtime says what its tensors reach, and every scale is chosen from that.
"""

from __future__ import annotations

import math
import random
from dataclasses import dataclass, field

import numpy as np
import onnx
import onnxruntime
from onnx import TensorProto, helper, numpy_helper

OPSET = 21
ELEMENTS = {
    "int4": TensorProto.INT4,
    "uint4": TensorProto.UINT4,
    "int8": TensorProto.INT8,
    "uint8": TensorProto.UINT8,
    "int16": TensorProto.INT16,
    "uint16": TensorProto.UINT16,
    "int32": TensorProto.INT32,
}
UNARY = (
    "Relu", "Sigmoid", "Tanh", "LeakyRelu", "HardSigmoid", "HardSwish", "Elu", "Gelu", "Abs", "Neg", "Softplus", "Erf", "Clip",
    "Identity", "Floor", "Ceil", "Round", "Softsign", "Mish", "Selu", "Celu", "ThresholdedRelu",
)  # fmt: skip
LARGEST_INT32 = 2**31 - 1


def codes_of(dtype: str) -> tuple[int, int]:
    """Return the smallest and the largest code of a format."""
    bits = int(dtype.removeprefix("u").removeprefix("int"))
    return (0, 2**bits - 1) if dtype.startswith("u") else (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1)


@dataclass(frozen=True)
class Grid:
    """Scales and zero points of one tensor; *axis* is set if there are several."""

    dtype: str
    scale: np.ndarray
    zero: np.ndarray
    axis: int | None = None

    def along(self, values: np.ndarray, rank: int) -> np.ndarray:
        """Return numbers along the axis, shaped to broadcast."""
        if self.axis is None:
            return values
        return values.reshape([-1 if i == self.axis % rank else 1 for i in range(rank)])


@dataclass
class Drawn:
    """A float graph under construction, and the grids of its constants."""

    random: random.Random
    formats: tuple[str, ...]
    powers: bool
    """Whether every scale is a power of two: then float32 and integers compute the very same, up to ties."""
    nodes: list[onnx.NodeProto] = field(default_factory=list)
    shapes: dict[str, tuple[int, ...]] = field(default_factory=dict)
    constants: dict[str, np.ndarray] = field(default_factory=dict)
    """As they are: shapes, axes, bounds."""
    weights: dict[str, tuple[np.ndarray, Grid, bool]] = field(default_factory=dict)
    """Codes, their grid, and whether the file holds codes (else float values before a QuantizeLinear)."""
    biases: dict[str, tuple[str, str, np.ndarray, int]] = field(default_factory=dict)
    """Bias -> operand, weight, codes of 32 bits, how its grid is chosen."""

    def integers(self, low: int, high: int, shape: tuple[int, ...]) -> np.ndarray:
        """Return whole numbers from *low* to *high*."""
        drawn = [self.random.randint(low, high) for _ in range(math.prod(shape))]
        return np.array(drawn, np.int64).reshape(shape)

    def normal(self, shape: tuple[int, ...]) -> np.ndarray:
        """Return normally distributed numbers."""
        return np.array([self.random.gauss(0.0, 1.0) for _ in range(math.prod(shape))], np.float32).reshape(shape)

    def pick(self, *choices: object) -> object:
        """Return one of *choices*."""
        return self.random.choice(choices)

    def whole(self, *values: int) -> str:
        """Return the name of a constant of int64."""
        return self.constant(np.array(values, np.int64))

    def constant(self, values: np.ndarray) -> str:
        """Return the name of a constant that stays as it is."""
        name = f"c{len(self.constants)}"
        self.constants[name] = values
        return name

    def scale(self, reach: float, steps: int) -> float:
        """Return a scale under which *steps* codes reach about *reach*; now and then they clip, or are few."""
        wanted = max(reach, 1e-3) / steps * self.random.choice((0.3, 1.0, 1.0, 1.0, 2.7))
        return 2.0 ** round(math.log2(wanted)) if self.powers else wanted * self.random.uniform(0.8, 1.25)

    def grid(self, low: float, high: float, dtype: str) -> Grid:
        """Return a grid for values in [low, high]."""
        first, last = codes_of(dtype)
        symmetric = self.random.random() < 0.4
        reach = max(abs(low), abs(high)) if symmetric else high - min(low, 0.0)
        scale = np.float32(self.scale(reach, (last - first) // (2 if symmetric else 1)))
        middle = (first + last + 1) // 2 if symmetric else first + round(-min(low, 0.0) / float(scale))
        if self.random.random() < 0.1:
            middle = self.random.randint(first, last)
        return Grid(dtype, scale, np.array(min(max(middle, first), last)))

    def weight(self, shape: tuple[int, ...], axis: int | None, reach: float = 1.0, *, symmetric: bool = True) -> str:
        """Return a quantized constant; *axis* is where it may have several scales."""
        name = f"w{len(self.weights)}"
        signed = [f"int{f.removeprefix('u').removeprefix('int')}" for f in self.formats]
        dtype = self.random.choice(signed if symmetric else self.formats)
        if symmetric and self.random.random() < 0.15:
            dtype, symmetric = f"u{dtype}", False
        first, last = codes_of(dtype)
        count = None if axis is None or self.random.random() < 0.5 else shape[axis]
        steps = (last - first) // 2
        scale = np.array([self.scale(reach, steps) for _ in range(count or 1)], np.float32)
        zero = np.zeros(count or 1, np.int64)
        if not symmetric:
            zero = np.array([self.random.randint(first, last) for _ in range(count or 1)])
        grid = Grid(dtype, scale if count else scale[0], zero if count else zero[0], axis if count else None)
        codes = self.integers(first, last, shape)
        if self.random.random() < 0.1:
            codes = np.full(shape, self.random.choice((first, last)))
        self.weights[name] = (codes, grid, self.random.random() < 0.7)
        self.shapes[name] = shape
        return name

    def bias(self, operand: str, weight: str, count: int | tuple[int, ...]) -> str:
        """Return a bias: of 32 bits at the product of the scales, at another scale, a float constant, or of the usual bits."""
        shape = count if isinstance(count, tuple) else (count,)
        kind = self.random.choices((0, 1, 2, 3), (5, 1, 2, 1))[0]
        if kind == 2:
            return self.constant(self.normal(shape))
        if kind == 3:
            return self.weight(shape, None, 2.0)
        name = f"b{len(self.biases)}"
        self.biases[name] = operand, weight, self.integers(-3000, 3000, shape), kind
        self.shapes[name] = shape
        return name

    def add(self, op: str, inputs: list[str], shape: tuple[int, ...], **attrs: object) -> str:
        """Add a node; return its result: `t` and a number, of a weight that is turned `u` and a number."""
        name = f"{'u' if inputs[0] in self.weights and len(inputs) == 1 else 't'}{len(self.nodes)}"
        self.nodes.append(helper.make_node(op, inputs, [name], name=f"n{len(self.nodes)}", **attrs))
        self.shapes[name] = shape
        return name


@dataclass(frozen=True)
class Case:
    """A quantized model, its inputs, and the grids of its tensors."""

    seed: int
    model: onnx.ModelProto
    feeds: dict[str, np.ndarray]
    grids: dict[str, Grid]
    """Result of an operator -> its grid; the values of its codes are an output of the model, `<result>_out`."""
    operators: tuple[str, ...]


def session(model: onnx.ModelProto, *, optimized: bool) -> onnxruntime.InferenceSession:
    """Return a session on one thread that does not spin."""
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads, options.log_severity_level = 1, 4
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    levels = onnxruntime.GraphOptimizationLevel
    options.graph_optimization_level = levels.ORT_ENABLE_ALL if optimized else levels.ORT_DISABLE_ALL
    return onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])


class Assembly:
    """The quantized model of a drawn graph."""

    def __init__(self, drawn: Drawn, reached: dict[str, np.ndarray]) -> None:
        """Take what is drawn and the values that its tensors reach in float."""
        self.drawn, self.nodes, self.kept = drawn, [], {}
        self.grids: dict[str, Grid] = {}
        self.tensors: list[onnx.TensorProto] = []
        self.reached = reached

    def initializer(self, name: str, values: np.ndarray, dtype: str | None = None) -> str:
        """Keep a constant of the file."""
        if dtype is None:
            self.tensors.append(numpy_helper.from_array(np.asarray(values), name))
        else:
            array = np.asarray(values)
            self.tensors.append(helper.make_tensor(name, ELEMENTS[dtype], array.shape, array.reshape(-1).tolist()))
        return name

    def parameters(self, name: str, grid: Grid) -> list[str]:
        """Keep scale and zero point."""
        found = [self.initializer(f"{name}_scale", grid.scale.astype(np.float32))]
        return [*found, self.initializer(f"{name}_zero", grid.zero, grid.dtype)]

    def pair(self, name: str, source: str, target: str, grid: Grid) -> None:
        """Add QuantizeLinear and DequantizeLinear."""
        attrs = {"axis": grid.axis} if grid.axis is not None else {}
        numbers = self.parameters(name, grid)
        self.nodes.append(helper.make_node("QuantizeLinear", [source, *numbers], [f"{name}_q"], **attrs))
        self.nodes.append(helper.make_node("DequantizeLinear", [f"{name}_q", *numbers], [target], **attrs))

    def constant(self, name: str) -> None:
        """Add a quantized constant."""
        if name in self.drawn.weights:
            codes, grid, held = self.drawn.weights[name]
        else:
            codes, grid, held = *self.bias(name), True
        if held:
            attrs = {"axis": grid.axis} if grid.axis is not None else {}
            inputs = [self.initializer(f"{name}_codes", codes, grid.dtype), *self.parameters(name, grid)]
            self.nodes.append(helper.make_node("DequantizeLinear", inputs, [name], **attrs))
        else:
            self.initializer(f"{name}_float", values_of(codes, grid))
            self.pair(name, f"{name}_float", name, grid)

    def bias(self, name: str) -> tuple[np.ndarray, Grid]:
        """Return codes and grid of a bias: at the product of the scales of its operands, or at another scale."""
        operand, weight, codes, kind = self.drawn.biases[name]
        own = self.drawn.weights[weight][1] if weight in self.drawn.weights else None
        scale = self.grids[operand].scale * (own.scale if own is not None else np.float32(1))
        if kind:
            scale = scale * np.float32(self.drawn.random.choice((2.0, 0.75)))
        axis = 0 if scale.ndim and codes.ndim == 1 else None
        if scale.ndim and (axis is None or codes.shape[0] != scale.shape[0]):
            scale, axis = scale[0], None
        return codes, Grid("int32", scale, np.zeros(scale.shape, np.int64), axis)

    def model(self) -> onnx.ModelProto:
        """Return the model; its outputs are the values of the result of every operator."""
        d = self.drawn
        x = self.reached["x"]
        made: dict[str, str] = {}
        self.grids["x"] = d.grid(float(x.min()), float(x.max()), str(d.pick(*d.formats)))
        self.pair("x", "x", "x_v", self.grids["x"])
        made["x"] = "x_v"
        for name, values in d.constants.items():
            self.initializer(name, values)
        for node in d.nodes:
            for name in node.input:
                if (name in d.weights or name in d.biases) and name not in self.grids and name not in made:
                    self.constant(name)
                    made[name] = name
            (result,) = node.output
            inputs = [made.get(name, name) for name in node.input]
            copy = onnx.NodeProto()
            copy.CopyFrom(node)
            del copy.input[:], copy.output[:]
            copy.input.extend(inputs)
            if result.startswith("u"):
                copy.output.append(result)
                self.nodes.append(copy)
                continue
            copy.output.append(f"{result}_raw")
            self.nodes.append(copy)
            values = self.reached[result]
            self.grids[result] = self.moved(node) or d.grid(
                float(values.min()), float(values.max()), str(d.pick(*d.formats))
            )
            self.pair(result, f"{result}_raw", f"{result}_v", self.grids[result])
            made[result] = f"{result}_v"
        outputs = [f"{name}_out" for name in self.grids if name != "x"]
        for name in outputs:
            result = name.removesuffix("_out")
            inputs = [f"{result}_q", f"{result}_scale", f"{result}_zero"]
            self.nodes.append(helper.make_node("DequantizeLinear", inputs, [name]))
        graph = helper.make_graph(
            self.nodes,
            "drawn",
            [helper.make_tensor_value_info("x", TensorProto.FLOAT, d.shapes["x"])],
            [helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in outputs],
            self.tensors,
        )
        return helper.make_model(graph, opset_imports=[helper.make_opsetid("", OPSET)], ir_version=10)

    def moved(self, node: onnx.NodeProto) -> Grid | None:
        """Return the operand's grid for most movements."""
        moving = (
            "Transpose",
            "Reshape",
            "Slice",
            "Flatten",
            "Unsqueeze",
            "MaxPool",
            "Gather",
            "Pad",
            "Relu",
            "Clip",
            "Concat",
            "Split",
        )
        if node.op_type in moving and self.drawn.random.random() < 0.7:
            return self.grids.get(node.input[0])
        return None


def values_of(codes: np.ndarray, grid: Grid) -> np.ndarray:
    """Return the values of codes in float32."""
    rank = codes.ndim
    return ((codes - grid.along(grid.zero, rank)) * grid.along(grid.scale, rank).astype(np.float64)).astype(np.float32)


def float_model(d: Drawn) -> onnx.ModelProto:
    """Return the drawn graph without quantizations."""
    kept = dict(d.constants) | {name: values_of(codes, grid) for name, (codes, grid, _) in d.weights.items()}
    kept |= {name: (codes / 1000).astype(np.float32) for name, (_, _, codes, _) in d.biases.items()}
    graph = helper.make_graph(
        d.nodes,
        "drawn",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, d.shapes["x"])],
        [helper.make_tensor_value_info(node.output[0], TensorProto.FLOAT, None) for node in d.nodes],
        [numpy_helper.from_array(np.asarray(v), name) for name, v in kept.items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", OPSET)], ir_version=10)
