"""Nodes of ONNX, each evaluated on shapes as it is emitted: the kernels that run a graph also infer its shapes."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

import torch

from quantizer.core.dtypes import DTYPES, DType
from quantizer.core.errors import QuantizerError, UnsupportedError
from quantizer.ir.graph import FREE, Graph, Node, Tensor, container
from quantizer.runtime.onnx import FAMILIES
from quantizer.runtime.onnx.kernels import KERNELS, Context

OPSET = 21
"""The opset of every emitted graph: the first one whose DequantizeLinear reads 16-bit codes."""
SHAPED = ("Reshape", "Expand", "Tile", "Squeeze", "Unsqueeze", "Split", "TopK", "CumSum")
REDUCED = ("ReduceSum", "ReduceMean", "ReduceMax", "ReduceMin", "ReduceProd", "ReduceL1", "ReduceL2")
READ_WHOLE: dict[str, tuple[int, ...]] = {
    **dict.fromkeys((*SHAPED, *REDUCED), (1,)),
    "Clip": (1, 2),
    "Pad": (1, 2, 3),
    "Resize": (1, 2, 3),
    "Slice": (1, 2, 3, 4),
}
"""Operands whose values, not only shapes, decide the shape of the result."""
ELEMENTWISE = frozenset(
    [
        "Abs",
        "Acos",
        "Add",
        "And",
        "Atanh",
        "Ceil",
        "Clip",
        "Cos",
        "Cosh",
        "Div",
        "Elu",
        "Equal",
        "Erf",
        "Exp",
        "Floor",
        "Gelu",
        "Greater",
        "GreaterOrEqual",
        "HardSigmoid",
        "HardSwish",
        "LeakyRelu",
        "Less",
        "LessOrEqual",
        "Log",
        "Max",
        "Min",
        "Mish",
        "Mod",
        "Mul",
        "Neg",
        "Not",
        "Or",
        "PRelu",
        "Pow",
        "Reciprocal",
        "Relu",
        "Round",
        "Sigmoid",
        "Sign",
        "Sin",
        "Sinh",
        "Softplus",
        "Sqrt",
        "Sub",
        "Tan",
        "Tanh",
        "Where",
    ]
)
"""Operators with broadcasting operands. Running them on one element shows the result's type."""
LIKE_FIRST = frozenset({"BatchNormalization", "LayerNormalization", "GroupNormalization", "DequantizeLinear"})
"""Operators whose result has the shape of the first operand."""
SUMS = {"ConvInteger": "Conv", "MatMulInteger": "MatMul"}
"""Operators with int32 results -> the operator on floats whose result has the same shape."""
POOLS = frozenset({"MaxPool", "AveragePool", "GlobalAveragePool"})
"""Operators that treat every channel of every example alike."""
ON_SHAPES = frozenset(
    [
        "ArgMax",
        "ArgMin",
        "Cast",
        "Conv",
        "ConvTranspose",
        "Expand",
        "Gather",
        "Gemm",
        "Identity",
        "LogSoftmax",
        "MatMul",
        "Pad",
        "ReduceMax",
        "ReduceMin",
        "ReduceSum",
        "Reshape",
        "ScatterElements",
        "ScatterND",
        "Shape",
        "Slice",
        "Softmax",
        "Split",
        "Squeeze",
        "Tile",
        "TopK",
        "Transpose",
        "Unsqueeze",
    ]
)
"""Operators that run on torch's tensors without data, without importing torch's compiler."""
_DTYPES = {
    container(dtype): dtype
    for dtype in DTYPES.values()
    if dtype.kind in ("int", "uint", "bool") and dtype.bits in (1, 8, 16, 32, 64)
} | {
    torch.float16: DTYPES["float16"],
    torch.float32: DTYPES["float32"],
    torch.float64: DTYPES["float64"],
}
# importing the families fills KERNELS; the assertion uses the import, which would otherwise look unneeded
assert FAMILIES


@dataclass(frozen=True)
class Value:
    """A tensor of the emitted graph; `data` is set if it is known before the graph runs."""

    name: str
    dtype: DType
    shape: tuple[int, ...]
    data: torch.Tensor | None = None

    @property
    def rank(self) -> int:
        """The number of axes."""
        return len(self.shape)


Operand: TypeAlias = "Value | torch.Tensor | Sequence[int] | int | float | None"


class Emitter:
    """Collects the nodes of one graph of ONNX operators."""

    def __init__(self) -> None:
        self.nodes: list[Node] = []
        self.tensors: dict[str, Tensor] = {}
        self.place = ""
        """The node that is being lowered. Emitted nodes are named after it."""
        self._renamed: dict[str, str] = {}
        self._context = Context(Graph("", (), self.tensors, (), ()), torch.device("cpu"))
        self._counts: dict[str, int] = {}

    def bind(self, tensor: Tensor) -> Value:
        """Return a tensor of the outer graph as a value."""
        self.tensors[tensor.name] = tensor
        return Value(tensor.name, tensor.dtype, tensor.shape, tensor.data)

    def constant(self, data: torch.Tensor, dtype: DType | None = None) -> Value:
        """Return *data* as a value, by default in its own format."""
        kind = dtype or _DTYPES[data.dtype]
        return self.bind(Tensor(self._name("constant"), tuple(data.shape), kind, data.to(container(kind))))

    def op(self, op: str, *operands: Operand, **attrs: Any) -> Value:
        """Emit one node with one result.

        Numbers become constants of the first operand's format, sequences become int64.
        """
        return self.ops(op, 1, *operands, **attrs)[0]

    def ops(self, op: str, made: int, *operands: Operand, **attrs: Any) -> list[Value]:
        """Emit one node with several results.

        A result that depends only on constants becomes a constant, without a node.
        """
        values = self._values(op, operands)
        node = self._node(op, values, made, attrs)
        results = self._computed(node, values)
        # values are known if all operands are constants, or if only their shapes matter, as for Shape
        if all(result.device.type != "meta" for result in results):
            return [self.constant(result) for result in results]
        found = [
            Value(name, _DTYPES[result.dtype], tuple(result.shape))
            for name, result in zip(node.outputs, results, strict=True)
        ]
        return self._keep(node, found)

    def free(
        self, op: str, operands: Value | Sequence[Value], dtype: str, shape: tuple[int, ...], **attrs: Any
    ) -> Value:
        """Emit one node whose result has sizes that are only known when the graph runs."""
        node = self._node(op, [operands] if isinstance(operands, Value) else list(operands), 1, attrs)
        return self._keep(node, [Value(node.outputs[0], DTYPES[dtype], shape)])[0]

    def cast(self, value: Value, dtype: DType | str) -> Value:
        """Return *value* in another number format; unchanged if it already has it."""
        kind = DTYPES[dtype] if isinstance(dtype, str) else dtype
        if value.dtype == kind:
            return value
        if FREE in value.shape:
            # the kernels cannot infer a size that is free, and a cast keeps all sizes
            return self.free("Cast", value, kind.name, value.shape, to=kind, saturate=1)
        return self.op("Cast", value, to=kind, saturate=1)

    def name_result(self, value: Value, wanted: Tensor) -> Value:
        """Give a value the name of the tensor that it is in the outer graph."""
        # only a result of the node in `place` can take the outer name; others keep theirs behind an Identity
        made = {name for node in self.nodes for name in node.outputs} if value.data is None else set()
        if value.name not in made or value.name in self._renamed or not value.name.startswith(f"{self.place}/"):
            node = self._node("Identity", [value], 1, {})
            value = self._keep(node, [replace(value, name=node.outputs[0])])[0]
        # nodes keep the emitted names until `graph` renames all of them at once
        self._renamed[value.name] = wanted.name
        self.tensors[wanted.name] = replace(wanted, data=None)
        return replace(value, name=wanted.name, data=None)

    def graph(self, name: str, inputs: Sequence[str], outputs: Sequence[str]) -> Graph:
        """Return the emitted nodes as a graph of ONNX operators."""
        called = self._renamed
        nodes = tuple(
            replace(
                node,
                inputs=tuple(None if n is None else called.get(n, n) for n in node.inputs),
                outputs=tuple(called.get(n, n) for n in node.outputs),
            )
            for node in self.nodes
        )
        used = {*inputs, *outputs, *(n for node in nodes for n in (*node.reads, *node.outputs))}
        tensors = {key: tensor for key, tensor in self.tensors.items() if key in used}
        # sizes that only the executor for dynamic graphs accepts
        free = any(FREE in tensor.shape or 0 in tensor.shape for tensor in tensors.values())
        return Graph(name, nodes, tensors, tuple(inputs), tuple(outputs), extra={"opset": OPSET}, dynamic=free)

    def _name(self, kind: str) -> str:
        key = f"{self.place}/{kind}"
        count = self._counts[key] = self._counts.get(key, -1) + 1
        return f"{key}_{count}"

    def _values(self, op: str, operands: Sequence[Operand]) -> list[Value | None]:
        kind = next((v.dtype for v in operands if isinstance(v, Value)), DTYPES["float32"])
        found: list[Value | None] = []
        for i, item in enumerate(operands):
            if item is None or isinstance(item, Value):
                found.append(item)
            elif isinstance(item, torch.Tensor):
                found.append(self.constant(item))
            elif isinstance(item, int | float):
                # sizes, places and axes are int64; the bounds of Clip and the number of Pad have the operand's type
                own = DTYPES["int64"] if i in READ_WHOLE.get(op, ()) and op not in ("Clip", "Pad") else kind
                found.append(self.constant(torch.tensor(item, dtype=container(own)), own))
            else:
                found.append(self.constant(torch.tensor(list(item), dtype=torch.int64)))
        return found

    def _node(self, op: str, values: Sequence[Value | None], made: int, attrs: dict[str, Any]) -> Node:
        name = self._name(op)
        plain = {key: tuple(v) if isinstance(v, list) else v for key, v in attrs.items()}
        outputs = (name,) if made == 1 else tuple(f"{name}_{i}" for i in range(made))
        inputs = tuple(None if value is None else value.name for value in values)
        return Node(name, op, inputs, outputs, plain, extra={"since": OPSET})

    def _keep(self, node: Node, values: list[Value]) -> list[Value]:
        self.nodes.append(node)
        for value in values:
            self.tensors[value.name] = Tensor(value.name, value.shape, value.dtype)
        return values

    def _computed(self, node: Node, values: Sequence[Value | None]) -> list[torch.Tensor]:
        """Return what is known of the results: values if they depend only on constants, else shapes."""
        if any(value is not None and FREE in value.shape for value in values):
            raise UnsupportedError(f"{node.op}: an operand whose size is known only when the graph runs.")
        if all(value is None or value.data is not None for value in values):
            return self._run(node, [None if value is None else value.data for value in values])
        try:
            return self._inferred(node, values)
        except (RuntimeError, IndexError, ValueError) as err:
            given = ", ".join("absent" if v is None else f"{v.dtype} {list(v.shape)}" for v in values)
            raise UnsupportedError(f"{node.op} of {given}: {str(err).splitlines()[0]}") from None

    def _inferred(self, node: Node, values: Sequence[Value | None]) -> list[torch.Tensor]:
        """Return results of the right shape and type with as little computation as possible.

        For element-wise operators one element decides the type; products and movements run only on shapes; all others
        run on zeros.
        """
        first = values[0]
        assert first is not None
        if node.op in ELEMENTWISE:
            shape = torch.broadcast_shapes(
                *(v.shape for i, v in enumerate(values) if v is not None and not _is_bound(node, i))
            )
            probes = [None if v is None else v.data if _is_bound(node, i) else _one(v) for i, v in enumerate(values)]
            return [_meta(shape, result.dtype) for result in self._run(node, probes)]
        if node.op in LIKE_FIRST:
            return [_meta(first.shape, torch.float32 if first.dtype.is_integer else container(first.dtype))]
        if node.op in SUMS:
            sums = replace(node, op=SUMS[node.op])
            return [result.to(torch.int32) for result in self._run(sums, [_meta(v.shape) for v in values[:2] if v])]
        if node.op in POOLS:
            # one channel of one example shows the sizes of all
            image = torch.zeros((1, 1, *first.shape[2:]), dtype=container(first.dtype))
            return [_meta((*first.shape[:2], *v.shape[2:]), v.dtype) for v in self._run(node, [image])]
        if node.op in ON_SHAPES:
            whole = READ_WHOLE.get(node.op, ())
            bias = node.op == "ConvTranspose"
            shapes = [
                None
                if v is None or (bias and i == 2)
                else v.data
                if v.data is not None and (i in whole or not v.shape)
                else _meta(v.shape, container(v.dtype))
                for i, v in enumerate(values)
            ]
            # a kernel that looks at values fails without data, and then runs on zeros below
            with contextlib.suppress(QuantizerError, RuntimeError, TypeError):
                return self._run(node, shapes)
        zeros = [
            None if v is None else v.data if v.data is not None else torch.zeros(v.shape, dtype=container(v.dtype))
            for v in values
        ]
        return [result.to("meta") for result in self._run(node, zeros)]

    def _run(self, node: Node, operands: list[torch.Tensor | None]) -> list[torch.Tensor]:
        outcome = KERNELS[node.op](node, operands, self._context)
        found = list(outcome) if isinstance(outcome, list | tuple) else [outcome]
        # a kernel may give more results than the node names
        return found[: len(node.outputs)]


def _meta(shape: Sequence[int], dtype: torch.dtype = torch.float32) -> torch.Tensor:
    return torch.empty(tuple(shape), dtype=dtype, device="meta")


def _one(value: Value) -> torch.Tensor:
    """Return a tensor of one element, with the same number of axes."""
    return torch.ones([1] * value.rank, dtype=container(value.dtype))


def _is_bound(node: Node, i: int) -> bool:
    """Return whether operand *i* is a bound of Clip, which must stay a number."""
    return node.op == "Clip" and i > 0
