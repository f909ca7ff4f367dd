"""QDQ and QLinear models as float graphs, with the parameters of every quantized tensor listed separately."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import torch

from quantizer.core.dtypes import DTYPES
from quantizer.core.errors import UnsupportedError
from quantizer.core.platform_settings import Quantizer
from quantizer.ir.graph import Graph, Node, Tensor, container
from quantizer.numerics.qparams import QParams
from quantizer.numerics.quantize import dequantize, quantize
from quantizer.numerics.rules import same_numbers
from quantizer.runtime.onnx.kernels import KERNELS, Context

FLOAT = DTYPES["float32"]
WIDE = DTYPES["float64"]
"""The format of the bias's scale if QLinearConv adds the bias to its integer sums."""
MOVED = ("Flatten", "MaxPool", "Reshape", "Squeeze", "Transpose", "Unsqueeze")
"""Operators that may also run directly on codes."""
DEFAULT_AXIS = 1
# float32 has 24 bits: the quotient of a value by its scale rounds to the code of up to 16 bits again
EXACT_BITS = 16
"""Codes of at most this many bits are recovered exactly from their float32 values."""
LINEAR = Quantizer(operation="divide_float32", rounding="half_even", zero_point="after", nan="lowest")
"""The arithmetic of QuantizeLinear."""


@dataclass(frozen=True)
class Unfolded:
    """A float graph without QuantizeLinear and DequantizeLinear, and the parameters that these had."""

    graph: Graph
    params: Mapping[str, QParams]
    """Tensor of the graph -> its parameters: the operation that makes it is followed by a quantization."""
    codes: Mapping[str, str]
    """Tensor of codes of the model -> the tensor of the graph with these codes."""
    constants: Mapping[str, torch.Tensor]
    """Constant of the graph -> its codes in the file."""
    values: Mapping[str, str]
    """Float tensor of the model that is the graph's under another name."""


def unfolded(graph: Graph) -> Unfolded:
    """Return the float graph inside a QDQ or QLinear model.

    A constant that is quantized becomes the values of its codes. If its parameters are ones that QParams cannot express
    here (blocks, 8-bit floats), it becomes plain values. Any other quantization that they cannot express stays a node:
    computed scales, 8-bit floats, blocks, types other than float32. If codes are read with other parameters than their
    own, a QuantizeLinear converts them.
    """
    work = _Work(_without_qlinear(graph))
    for node in work.source.order:
        work.add(node)
    return work.result()


@dataclass
class _Work:
    """The float graph under construction."""

    source: Graph
    nodes: list[Node] = field(default_factory=list)
    tensors: dict[str, Tensor] = field(default_factory=dict)
    params: dict[str, QParams] = field(default_factory=dict)
    codes: dict[str, tuple[str, QParams]] = field(default_factory=dict)
    values: dict[str, str] = field(default_factory=dict)
    constants: dict[str, torch.Tensor] = field(default_factory=dict)
    made: dict[str, str] = field(default_factory=dict)
    """Tensor of codes of the model -> the tensor of the graph into which a node quantizes them."""
    shown: set[str] = field(default_factory=set)
    """Tensors that bodies read and that were added already."""

    def __post_init__(self) -> None:
        self.tensors = dict(self.source.tensors)

    def add(self, node: Node) -> None:
        if node.op == "QuantizeLinear" and self._has_parameters(node):
            self._quantize(node)
        elif node.op == "DequantizeLinear" and self._is_plain(node):
            self._take_plain(node)
        elif node.op == "DequantizeLinear" and self._has_parameters(node) and self._reads_own_codes(node):
            self._dequantize(node)
        elif self._moves(node):
            self._move(node)
        else:
            self.nodes.append(self._renamed(node))

    def _renamed(self, node: Node) -> Node:
        """Return the node with its inputs renamed to tensors of the graph: values, and codes from an added node."""
        for name in node.captures:
            self._show_to_bodies(name)
        return replace(node, inputs=tuple(None if n is None else self._held(n) for n in node.inputs))

    def _held(self, name: str) -> str:
        """Return the tensor of the graph that is the model's *name*."""
        if name not in self.codes:
            return self.values.get(name, name)
        if name not in self.made:
            self.made[name] = self._coded(name, f"{name}#codes")
        return self.made[name]

    def _coded(self, codes: str, name: str) -> str:
        """Add a QuantizeLinear that turns values back into exactly the codes *codes*."""
        source, params = self.codes[codes]
        if params.dtype.bits > EXACT_BITS:
            raise UnsupportedError(
                f"{codes!r} has codes of {params.dtype}, and a node reads them: a float32 does not hold them."
            )
        numbers = {
            f"{name}_scale": (FLOAT, params.scale.float()),
            f"{name}_zero": (params.dtype, params.zero_point.to(container(params.dtype))),
        }
        for key, (dtype, data) in numbers.items():
            self.tensors[key] = Tensor(key, tuple(data.shape), dtype, data)
        self.tensors[name] = replace(self.source.tensor(codes), name=name, dtype=params.dtype, data=None, qparams=None)
        axis = {} if params.axis is None else {"axis": params.axis}
        self.nodes.append(Node(name, "QuantizeLinear", (source, *numbers), (name,), axis, extra={"since": 21}))
        return name

    def _show_to_bodies(self, name: str) -> None:
        """Add the tensors that bodies of control flow read, under their own names."""
        if name in self.shown or (name not in self.codes and name not in self.values):
            return
        # the tensor of that name holds real numbers in this graph, but the body expects codes
        if name in self.codes and (self.codes[name][0] == name or name in self.source.inputs):
            raise UnsupportedError(f"{name!r} holds codes that a body of control flow reads: feed it real numbers.")
        self.shown.add(name)
        if name in self.codes:
            self._coded(name, name)
            return
        self.tensors[name] = replace(self.source.tensor(name), qparams=None)
        # bodies are not rewritten, so that the old name must exist
        self.nodes.append(Node(f"{name}#shown", "Identity", (self.values[name],), (name,), extra={"since": 13}))

    def _has_parameters(self, node: Node) -> bool:
        """Return whether our parameters express a QuantizeLinear or DequantizeLinear between float32 and integers."""
        quantizes = node.op == "QuantizeLinear"
        value = str(node.inputs[0] if quantizes else node.outputs[0])
        scale = self.source.tensors.get(str(node.inputs[1]))
        floats = all(t is None or t.dtype in (FLOAT, WIDE) for t in (self.source.tensors.get(value), scale))
        if not floats or any(node.attrs.get(key) for key in ("block_size", "precision")):
            return False
        try:
            self._params(node)
        except UnsupportedError:
            return False
        return True

    def _reads_own_codes(self, node: Node) -> bool:
        """Return whether a DequantizeLinear reads codes that have no other parameters than its own."""
        codes = str(node.inputs[0])
        if codes in self.codes:
            return same_numbers(self.codes[codes][1], self._params(node))
        return self.source.tensor(codes).data is not None or codes in self.source.inputs

    def _quantize(self, node: Node) -> None:
        name, params = self.values.get(str(node.inputs[0]), str(node.inputs[0])), self._params(node)
        known, data = self.params.get(name), self.tensors[name].data
        if data is not None and (known is None or not same_numbers(known, params)):
            name = self._quantized_constant(name, data, params, node.outputs[0])
        # nothing reads the tensor unquantized: the tensor itself gets the parameters
        elif known is None and self._is_quantized_alone(name, params):
            self.params[name] = params
        # other readers need it as it is, or with other parameters: a copy carries these
        elif known is None or not same_numbers(known, params):
            name = self._copied(name, node.outputs[0])
            self.params[name] = params
        self.codes[node.outputs[0]] = (name, params)

    def _quantized_constant(self, name: str, data: torch.Tensor, params: QParams, codes: str) -> str:
        """Return a constant with the values of its codes, under a new name if other nodes read the original."""
        if not self._is_quantized_alone(name, params):
            name = f"{codes}#values"
        found = quantize(data, params, LINEAR)
        self.tensors[name] = Tensor(name, tuple(data.shape), FLOAT, dequantize(found, params).float())
        self.params[name], self.constants[name] = params, found.to(container(params.dtype))
        return name

    def _is_quantized_alone(self, name: str, params: QParams) -> bool:
        """Return whether a tensor is read only by quantizations with the same parameters."""
        readers = self.source.consumers.get(name, ())
        return name not in self.source.outputs and all(
            reader.op == "QuantizeLinear"
            and reader.inputs[0] == name
            and self._has_parameters(reader)
            and same_numbers(self._params(reader), params)
            for reader in readers
        )

    def _copied(self, name: str, codes: str) -> str:
        """Return a copy of a tensor: quantized if the tensor is unquantized, and the reverse."""
        tensor = self.tensors[name]
        if not tensor.ranked:
            raise UnsupportedError(f"{name!r} is quantized and is read as it is too: its number of axes must be known.")
        copy, same = f"{codes}#values", f"{codes}#same"
        self.tensors[same] = Tensor(same, (len(tensor.shape),), DTYPES["int64"], torch.zeros(len(tensor.shape)).long())
        self.tensors[copy] = replace(tensor, name=copy, data=None, qparams=None)
        # a Reshape to [0, 0, ...], which keeps each size: a movement, which the registry has and keeps codes unchanged
        self.nodes.append(Node(copy, "Reshape", (name, same), (copy,), {"allowzero": 0}, extra={"since": 14}))
        return copy

    def _dequantize(self, node: Node) -> None:
        codes, made = str(node.inputs[0]), node.outputs[0]
        if codes not in self.codes:
            self._take_codes(codes, made, self._params(node))
        else:
            self.values[made] = self.codes[codes][0]

    def _take_plain(self, node: Node) -> None:
        """Make a constant of codes whose parameters have no form here."""
        values = [None if name is None else self.source.tensor(name).data for name in node.inputs]
        data = KERNELS["DequantizeLinear"](node, values, Context(self.source, torch.device("cpu")))
        assert isinstance(data, torch.Tensor)
        made = self.source.tensor(node.outputs[0])
        self.tensors[made.name] = replace(made, shape=tuple(data.shape), data=data, ranked=True, qparams=None)

    def _is_plain(self, node: Node) -> bool:
        """Return whether a DequantizeLinear makes a constant of codes whose parameters have no form here."""
        constant = all(name is None or self.source.tensor(name).data is not None for name in node.inputs)
        return constant and not self._has_parameters(node)

    def _take_codes(self, codes: str, made: str, params: QParams) -> None:
        """Turn a constant or an input that the file holds as codes into a float tensor with parameters."""
        tensor = self.source.tensor(codes)
        if tensor.data is not None:
            data = dequantize(tensor.data.long(), params).float()
            self.tensors[made] = Tensor(made, tuple(data.shape), FLOAT, data)
            self.params[made], self.constants[made] = params, tensor.data
        else:
            # an input of codes becomes an input of real numbers
            self.tensors[codes] = replace(tensor, dtype=FLOAT, qparams=None)
            self.codes[codes], self.params[codes], self.values[made] = (codes, params), params, codes

    def _moves(self, node: Node) -> bool:
        """Return whether a node moves codes with a single scale (several scales would lie along the operand's axis)."""
        moved = self.codes.get(str(node.inputs[0])) if node.op in MOVED and len(node.outputs) == 1 else None
        return moved is not None and moved[1].axis is None

    def _move(self, node: Node) -> None:
        source, params = self.codes[str(node.inputs[0])]
        made = node.outputs[0]
        self.tensors[made] = replace(self.tensors[made], dtype=FLOAT, qparams=None)
        self.params[made], self.codes[made] = params, (made, params)
        self.nodes.append(replace(node, inputs=(source, *node.inputs[1:])))

    def _params(self, node: Node) -> QParams:
        """Return the parameters of a QuantizeLinear or DequantizeLinear."""
        place = f"node {node.name!r}"
        scale, zero = (*(self.source.tensor(name) if name else None for name in node.inputs[1:]), None)[:2]
        if scale is None or scale.data is None or (zero is not None and zero.data is None):
            raise UnsupportedError(f"{place}: scale and zero point are computed: must be constants.")
        if node.attrs.get("block_size"):
            raise UnsupportedError(f"{place}: block_size: parameters of blocks have no codes here.")
        held = self.source.tensor(node.outputs[0] if node.op == "QuantizeLinear" else str(node.inputs[0]))
        dtype = held.dtype if zero is None else zero.dtype
        if not dtype.is_integer:
            raise UnsupportedError(f"{place}: codes of {dtype}: must be integers.")
        along = node.attrs.get("axis", DEFAULT_AXIS) if scale.data.numel() > 1 else None
        assert along is None or isinstance(along, int)
        if along is not None and along < 0 and held.ranked:
            along %= len(held.shape)
        if zero is not None and zero.data is not None and zero.data.numel() != scale.data.numel():
            raise UnsupportedError(
                f"{place}: {scale.data.numel()} scales, {zero.data.numel()} zero points: the numbers must be equal."
            )
        if scale.data.dim() > 1 or not bool((torch.isfinite(scale.data) & (scale.data > 0)).all()):
            raise UnsupportedError(f"{place}: scales must be above 0 and finite, one or along one axis.")
        # one scale has no axes, whatever shape the file gave it
        values = scale.data.double().reshape(-1 if along is not None else ())
        offset = torch.zeros_like(values).long() if zero is None or zero.data is None else zero.data.long()
        return QParams(dtype, values, offset.reshape(values.shape), dtype.min, dtype.max, along)

    def result(self) -> Unfolded:
        source = self.source
        outputs = [self.codes[n][0] if n in self.codes else self.values.get(n, n) for n in source.outputs]
        made = {name for node in self.nodes for name in (*node.reads, *node.outputs)} | {*source.inputs, *outputs}
        graph = source.with_(
            nodes=tuple(self.nodes),
            # two outputs may have become one tensor
            outputs=tuple(dict.fromkeys(outputs)),
            tensors={name: tensor for name, tensor in self.tensors.items() if name in made},
        )
        codes = {name: found for name, (found, _) in self.codes.items()}
        return Unfolded(graph, self.params, codes, self.constants, self.values)


def _without_qlinear(graph: Graph) -> Graph:
    """Return *graph* with QLinearConv and QLinearMatMul as float operators between quantizations.

    A product with scales along several axes stays as it is: no quantization has such scales. So does a convolution
    with a computed bias: float32 cannot hold its 32 bits.
    """
    nodes: list[Node] = []
    added: dict[str, Tensor] = {}
    for node in graph.order:
        if node.op in ("QLinearConv", "QLinearMatMul") and not (
            _has_scales_along_axes(graph, node) or _has_computed_bias(graph, node)
        ):
            nodes += _as_qdq(graph, node, added)
        else:
            nodes.append(node)
    return graph.with_(nodes=tuple(nodes)).with_tensors(*added.values())


def _has_scales_along_axes(graph: Graph, node: Node) -> bool:
    scales = (graph.tensor(str(node.inputs[place])) for place in (1, 4))
    return any(len(scale.shape) > 1 and math.prod(scale.shape) > 1 for scale in scales)


def _has_computed_bias(graph: Graph, node: Node) -> bool:
    """Return whether the bias, or a scale that determines the bias's scale, is not a constant."""
    bias = [name for name in node.inputs[8:] if name is not None]
    return bool(bias) and any(graph.tensor(str(name)).data is None for name in (*bias, node.inputs[1], node.inputs[4]))


def _as_qdq(graph: Graph, node: Node, added: dict[str, Tensor]) -> list[Node]:
    a, a_scale, a_zero, b, b_scale, b_zero, y_scale, y_zero, *bias = node.inputs
    convolution = node.op == "QLinearConv"
    ranks = {"a": len(graph.tensor(str(a)).shape), "b": len(graph.tensor(str(b)).shape)}
    # filters are axis 0; of a product, rows of A and columns of B
    axes = {"a": 0, "b": 0} if convolution else {"a": max(0, ranks["a"] - 2), "b": max(0, ranks["b"] - 1)}
    before = []
    for key, operand in {"a": (a, a_scale, a_zero), "b": (b, b_scale, b_zero)}.items():
        name = f"{node.name}#{key}"
        added[name] = replace(graph.tensor(str(operand[0])), name=name, dtype=FLOAT, data=None, qparams=None)
        before.append(Node(name, "DequantizeLinear", operand, (name,), {"axis": axes[key]}))
    inputs = [f"{node.name}#a", f"{node.name}#b"]
    if bias and bias[0] is not None:
        scales = [graph.tensor(str(name)).data for name in (a_scale, b_scale)]
        assert scales[0] is not None
        assert scales[1] is not None
        # in float64: the kernel adds the bias to integer sums, whose unit is the exact product of both scales
        scale, name = scales[0].reshape(()).double() * scales[1].double(), f"{node.name}#bias"
        added[f"{name}_scale"] = Tensor(f"{name}_scale", tuple(scale.shape), DTYPES["float64"], scale)
        added[name] = replace(graph.tensor(bias[0]), name=name, dtype=FLOAT, data=None, qparams=None)
        before.append(Node(name, "DequantizeLinear", (bias[0], f"{name}_scale"), (name,), {"axis": 0}))
        inputs.append(name)
    raw, made = f"{node.name}#float", graph.tensor(node.outputs[0])
    added[raw] = replace(made, name=raw, dtype=FLOAT, qparams=None)
    op = "Conv" if convolution else "MatMul"
    return [
        *before,
        # a version with Conv's and MatMul's attributes, which are those of the QLinear operators
        replace(node, op=op, inputs=tuple(inputs), outputs=(raw,), extra={**node.extra, "since": 11}),
        Node(f"{node.name}#quantize", "QuantizeLinear", (raw, y_scale, y_zero), node.outputs, {"axis": 0}),
    ]
