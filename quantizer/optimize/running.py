"""Running float and quantized graphs on batches of any size. A tensor is freed after its last reader."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import cast

import torch
from torch import Tensor

from quantizer.core.dtypes import DType
from quantizer.core.errors import GraphError, UnsupportedError
from quantizer.core.platform_settings import Quantizer
from quantizer.core.spec import Spec
from quantizer.ir.formats.compass_params import WINOGRAD, scale_of
from quantizer.ir.formats.compass_read_back import OUTPUT_STEPS
from quantizer.ir.graph import Graph, Node, container
from quantizer.ir.graph import Tensor as GraphTensor
from quantizer.numerics import winograd
from quantizer.numerics.activations import activate
from quantizer.numerics.pinned import pinned
from quantizer.numerics.qparams import Parameters, QParams
from quantizer.numerics.quantize import quantize
from quantizer.numerics.requantize_accumulator import requantize_accumulator
from quantizer.optimize.moving_layers import boxed
from quantizer.plugins.layers_without_spec import LoneLayer, activations
from quantizer.runtime.executor import activated, run_node, to_node_order

FLOAT64_SUMS = ("convolution", "depthwise_convolution", "resizing")
"""Families whose float forward computes in float64, and passes float64 on if no activation is fused, as in Compass.

Statistics see it rounded to float32.
"""
OF_ANY_FLOAT = ("movement", "concatenation")
"""Families that keep the type of real values."""
ENDS = {"slice": "end"}
"""Operator -> its attribute with one end for each axis. A slice to the end of the IR's batch goes to the end of the fed
batch instead."""
QUANTIZE, DEQUANTIZE = "Quantize", "DeQuantize"
CROP, SLICE, CONCAT = "Crop", "Slice", "Concat"
"""Layers around tiles, which only move codes."""
Before = Callable[[Node, Sequence[Tensor | None]], Node]
"""A function that may change a layer before it runs on its operands."""


def as_it_is(node: Node, operands: Sequence[Tensor | None]) -> Node:  # noqa: ARG001 - required by the common signature
    """Return the layer unchanged."""
    return node


@dataclass(frozen=True)
class Runner:
    """The context of a run: the specs, the quantizer, and the batch size of the file."""

    specs: Mapping[str, Spec]
    quantizer: Quantizer
    batch: int
    """Size of the first axis in the IR."""

    def forward(self, graph: Graph, feeds: Mapping[str, Tensor]) -> Iterator[tuple[str, Node | None, Tensor]]:
        """Yield (tensor, its layer, its values) in order: first the inputs, then each layer's outputs.

        A layer with parameters runs on codes (int64), any other in float32. GraphError for a feed of another shape.
        """
        for name, node, values in self.forward_in_types(graph, feeds):
            yield name, node, values.float() if values.dtype == torch.float64 else values

    def forward_in_types(
        self, graph: Graph, feeds: Mapping[str, Tensor], before: Before = as_it_is
    ) -> Iterator[tuple[str, Node | None, Tensor]]:
        """Yield the same as `forward`, but in float64 where layers pass float64 on; *before* may change a layer."""
        # how often each tensor is still to be read; at 0 its memory is freed
        readers = Counter(name for node in graph.nodes for name in node.inputs if name is not None)
        kept = set(graph.outputs)
        values: dict[str, Tensor] = {}
        size = self._fed(graph, feeds)
        for name in graph.inputs:
            params = graph.tensor(name).qparams
            values[name] = feeds[name].float() if params is None else self.codes(feeds[name], params)
            yield name, None, values[name]
        for node in graph.order:
            operands = [None if name is None else self._operand(graph, values, name, size) for name in node.inputs]
            for name, made in zip(node.outputs, self._run(graph, before(node, operands), operands, size), strict=True):
                values[name] = made
                yield name, node, made
            for read in node.inputs:
                if read is not None:
                    readers[read] -= 1
                    if not readers[read] and read not in kept:
                        values.pop(read, None)

    def layer(self, graph: Graph, node: Node, operands: Sequence[Tensor | None]) -> list[Tensor]:
        """Return the result of one layer on *operands*, whose first axis is the batch."""
        first = next(values for values in operands if values is not None)
        return self._run(graph, node, list(operands), len(first) if first.dim() else self.batch)

    def outputs(self, graph: Graph, feeds: Mapping[str, Tensor]) -> list[Tensor]:
        """Return the graph's outputs in order."""
        found = {name: values for name, _, values in self.forward(graph, feeds) if name in graph.outputs}
        return [found[name] for name in graph.outputs]

    def codes(self, values: Tensor, params: QParams) -> Tensor:
        """Return codes of real values. Values that are codes already (scale 1) are only rounded."""
        return quantize(values.float(), params, self.quantizer)

    def _fed(self, graph: Graph, feeds: Mapping[str, Tensor]) -> int:
        """Return the batch size of *feeds*."""
        sizes = []
        for name in graph.inputs:
            wanted = graph.tensor(name).shape
            if name not in feeds:
                raise GraphError(f"input {name!r}: was not fed.")
            got = tuple(feeds[name].shape)
            # wanted[0] / batch rows belong to one sample, and the fed rows must be whole samples
            if len(got) != len(wanted) or got[1:] != wanted[1:] or (got and got[0] * self.batch % max(1, wanted[0])):
                raise GraphError(f"input {name!r}: samples of shape {list(got)}, the IR says {list(wanted)}.")
            if wanted and wanted[0] == self.batch:
                sizes.append(got[0])
        return max(sizes, default=self.batch)

    def _operand(self, graph: Graph, values: Mapping[str, Tensor], name: str, size: int) -> Tensor:
        """Return an operand; a constant with the IR's batch size is repeated for a larger batch."""
        if name in values:
            return values[name]
        tensor = graph.tensor(name)
        assert tensor.data is not None
        # kernels take codes as int64, whatever the file stores
        data = tensor.data.long() if tensor.dtype.is_integer else tensor.data
        # only a constant with one row per sample grows; a constant that all samples share must not
        if name in graph.consumers and size != self.batch and self._batched(graph, name):
            return data.repeat(size // self.batch, *([1] * (data.dim() - 1)))
        return data

    def _batched(self, graph: Graph, name: str) -> bool:
        """Return whether a constant is an activation of its readers, with the IR's batch as its first size."""
        shape = graph.tensor(name).shape
        if len(shape) < 2 or shape[0] != self.batch:
            return False
        for node in graph.consumers[name]:
            if node.op in (CROP, SLICE):
                return True
            spec = self.specs.get(node.op)
            if spec is not None and any(
                key in spec.activations for key, own in zip(spec.inputs, node.inputs, strict=True) if own == name
            ):
                return True
        return False

    @pinned()
    def _run(self, graph: Graph, node: Node, operands: list[Tensor | None], size: int) -> list[Tensor]:
        if node.op == QUANTIZE:
            params = graph.tensor(node.outputs[0]).qparams
            assert params is not None
            return [self.codes(_first(operands), params)]
        if node.op == DEQUANTIZE:
            params = graph.tensor(str(node.inputs[0])).qparams
            assert params is not None
            return [real(_first(operands), params).to(container(graph.tensor(node.outputs[0]).dtype)).float()]
        if node.op == CROP:
            crops = cast("tuple[tuple[int, int], ...]", node.attrs["crops"])
            return [boxed(_first(operands), crops, graph.tensor(str(node.inputs[0])).shape[0])]
        if node.op == SLICE:
            begin, end = (cast("tuple[int, ...]", node.attrs[key]) for key in ("begin", "end"))
            box = tuple(zip(begin, end, strict=True))
            return [boxed(_first(operands), box, graph.tensor(str(node.inputs[0])).shape[0])]
        if node.op == CONCAT:
            return [torch.cat([values for values in operands if values is not None], cast("int", node.attrs["axis"]))]
        if isinstance(node.parameters, LoneLayer):
            return node.parameters.run([values for values in operands[: len(activations(node))] if values is not None])
        if node.extra.get(WINOGRAD) is True:
            return [_by_winograd(node, operands, graph.tensor(node.outputs[0]).shape)]
        if OUTPUT_STEPS in node.extra:
            return [_by_scales(graph, node, operands)]
        spec = self.specs.get(node.op)
        if spec is None:
            raise UnsupportedError(f"layer {node.name!r}: {node.op}: no operator here is that layer.")
        named = {key: values for key, values in zip(spec.inputs, operands, strict=True) if values is not None}
        node = self._rebatched(spec, node, named, size)
        if isinstance(node.parameters, Parameters):
            for key, constant in node.parameters.constants.items():
                named[key] = to_node_order(constant.codes, node.order, spatial=spec.inputs[key].spatial)
            return list(run_node(spec, node, named).tensors)
        return self._float(spec, node, named, graph.tensor(node.outputs[0]).dtype)

    def _float(self, spec: Spec, node: Node, operands: Mapping[str, Tensor], dtype: DType) -> list[Tensor]:
        arranged = {key: values.to(_float_type(spec.quantization.family, values)) for key, values in operands.items()}
        outcome = run_node(spec, node, arranged, "compass")
        return [_held(made if node.activation == "none" else made.float(), dtype) for made in outcome.tensors]

    def _rebatched(self, spec: Spec, node: Node, operands: Mapping[str, Tensor], size: int) -> Node:
        """Return the node with the IR's batch size in its shape attributes replaced by the fed batch size."""
        if size == self.batch:
            return node
        changed = dict(node.attrs)
        if spec.op in ENDS:
            end = cast("tuple[int, ...]", changed[ENDS[spec.op]])
            changed[ENDS[spec.op]] = (size if end[0] == self.batch else end[0], *end[1:])
        for name, domain in spec.attrs.items():
            shape = node.attrs.get(name)
            if domain.type == "shape" and isinstance(shape, tuple) and self.batch in shape:
                numbers = list(cast("tuple[int, ...]", shape))
                place = numbers.index(self.batch)
                rest = math.prod(numbers[:place] + numbers[place + 1 :])
                # a shape keeps its number of elements, so the other axes determine the first
                numbers[place] = next(iter(operands.values())).numel() // rest
                changed[name] = tuple(numbers)
        return replace(node, attrs=changed)


def _by_winograd(node: Node, operands: Sequence[Tensor | None], shape: tuple[int, ...]) -> Tensor:
    """Return a convolution by Winograd's algorithm: sums in float32, the bias added in float64, as Compass does.

    Zero points are subtracted first, so that padding is zero. Compass pads with the negated zero point.
    """
    x, weights, bias = (*operands, None)[:3]
    assert x is not None
    assert weights is not None
    # channels first, as the algorithm takes them
    provided, weights = node.parameters, weights.movedim(-1, 1)
    if isinstance(provided, Parameters):
        own = provided.constants["weight"]
        weights = own.codes - own.params.along(own.params.zero_point, own.codes.dim())
        bias = provided.constants["bias"].codes if bias is not None else None
        x = x - provided.inputs["x"].zero_point
    padding = cast("tuple[int, int, int, int]", node.attrs["padding"])
    made = winograd.convolved(x.movedim(-1, 1), weights, padding, (shape[1], shape[2])).double()
    made = made if bias is None else made + bias.double().reshape(-1, 1, 1)
    if isinstance(provided, Parameters):
        # whole numbers: the transforms of input and output have the entries -1, 0 and 1 only
        codes = activated(requantize_accumulator(made.long(), provided), provided, node.activation)
        assert isinstance(codes, Tensor)
        return codes.movedim(1, -1)
    made = activate(made, node.activation, node.activation_attrs, 1).movedim(1, -1)
    return made if node.activation == "none" else made.float()


def _by_scales(graph: Graph, node: Node, operands: Sequence[Tensor | None]) -> Tensor:
    """Return the codes of a fully connected layer: products of codes in float64, three scales, the bias unchanged."""
    x, weights, bias = (*operands, None)[:3]
    assert x is not None
    assert weights is not None
    w, y = (graph.tensor(str(name)).qparams for name in (node.inputs[1], node.outputs[0]))
    assert w is not None
    assert y is not None
    scales = (cast("GraphTensor", node.extra[f"scale{number}"]).data for number in (1, 2, 3))
    units, weight_units, steps = (scale for scale in scales if scale is not None)
    # products of 16-bit codes stay below 2^32, so 2^21 of them are exact in float64
    sums = x.double() @ (weights.double() - w.along(w.zero_point, 2)).T * units * weight_units
    made = activate(sums if bias is None else sums + bias.float(), node.activation, node.activation_attrs)
    return (steps * made.float()).round().nan_to_num(nan=0.0).clamp(y.qmin, y.qmax).long()


def _float_type(family: str, values: Tensor) -> torch.dtype:
    """Return the type to which real values are converted before an operator of *family* reads them."""
    if family in FLOAT64_SUMS:
        return torch.float64
    return values.dtype if family in OF_ANY_FLOAT and values.dtype == torch.float64 else torch.float32


def _held(made: Tensor, dtype: DType) -> Tensor:
    """Return real values rounded to the type in which a tensor of *dtype* is stored."""
    # a round trip through the narrow type rounds; layers compute in float32 all the same
    return made if dtype.kind != "float" or dtype.bits >= 32 else made.to(container(dtype)).float()


def real(codes: Tensor, params: QParams) -> Tensor:
    """Return `(code - zero_point) * (1 / steps)` in float32, as Compass dequantizes."""
    zero = params.along(params.zero_point, codes.dim())
    # Compass multiplies by the reciprocal; a division would round differently
    return (codes - zero).float() * (1.0 / params.along(scale_of(params), codes.dim()))


def _first(operands: list[Tensor | None]) -> Tensor:
    assert operands[0] is not None
    return operands[0]


def batch_in_ir(graph: Graph) -> int:
    """Return the batch size of the IR: of the first input with three to five axes, else the commonest first size."""
    shapes = [graph.tensor(name).shape for name in graph.inputs]
    for shape in shapes:
        # sequences, images, volumes: their first axis is the batch; an input of one or two axes may have none
        if len(shape) in (3, 4, 5):
            return shape[0]
    counts = Counter(shape[0] for shape in shapes if shape)
    return counts.most_common(1)[0][0] if counts else 1
