"""Layers whose type has no spec: a plugin's functions run on the layer itself, as in the original."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from quantizer.core.errors import GraphError
from quantizer.ir.formats.compass_graph import CONSTANTS
from quantizer.ir.graph import Graph, Node
from quantizer.ir.graph import Tensor as GraphTensor
from quantizer.numerics.qparams import QParams
from quantizer.plugins import flow
from quantizer.plugins.aipu.dtypes import Dtype
from quantizer.plugins.aipu.node import PyGraph, PyNode
from quantizer.plugins.aipu.optypes import OpTypeValue
from quantizer.plugins.aipu.registration import Kind, LayerFunction
from quantizer.plugins.aipu.tensor import PyTensor, TensorShape
from quantizer.plugins.flow import PluginForward
from quantizer.plugins.layer import held_codes, theirs
from quantizer.plugins.layer_parameters import apply, codes_of, file_tensor, plain, quantization
from quantizer.plugins.loading import LAYERS

SCALED = ("weights", "biases")
"""Constants whose scale and zero point the file contains."""


class LoneLayer(ABC):
    """A layer without a spec: it can run, be quantized, and give the content of its file."""

    @abstractmethod
    def run(self, operands: Sequence[Tensor]) -> list[Tensor]:
        """Return the outputs for *operands*: real values (float32), or codes (int64) if the layer is quantized."""

    @abstractmethod
    def decided(
        self,
        samples: Sequence[Tensor],
        inputs: Sequence[QParams],
        ranges: Sequence[tuple[float, float]],
        attrs: Mapping[str, Any],
    ) -> LoneLayer:
        """Return the quantized layer for real inputs with their parameters, ranges of the outputs, and settings."""

    @property
    @abstractmethod
    def outputs(self) -> list[QParams]:
        """The parameters of each output."""

    @abstractmethod
    def constants(self) -> dict[str, GraphTensor]:
        """Return constants as the file holds them."""

    @abstractmethod
    def params(self) -> dict[str, Any]:
        """Return the parameters in the form of the file."""


@dataclass(frozen=True)
class PluginLayer(LoneLayer):
    """A layer in the form that a plugin's functions see. Calibrated and quantized copies are made from it."""

    node: PyNode
    forward: LayerFunction
    quantize: LayerFunction

    def run(self, operands: Sequence[Tensor]) -> list[Tensor]:
        """Return the outputs for *operands*: real values (float32), or codes (int64) where the layer is quantized.

        GraphError if an output has another number of axes than the IR says.
        """
        node = self.node
        for tensor, values in zip(node.inputs, operands, strict=True):
            tensor.betensor = held_codes(values) if node.quantized else values.float()
        # the batch of this run may differ from that of the IR
        if node.graph is not None and operands and operands[0].dim():
            node.graph.current_batch_size = operands[0].shape[0]
        PluginForward(self.forward)(node)
        made = [codes_of(t, "output") if node.quantized else t.betensor.float() for t in node.outputs]
        flow.free(node)
        return made

    def decided(
        self,
        samples: Sequence[Tensor],
        inputs: Sequence[QParams],
        ranges: Sequence[tuple[float, float]],
        attrs: Mapping[str, Any],
    ) -> LoneLayer:
        """Return the quantized layer after a forward on *samples*, with the inputs' parameters and calibrated outputs.

        PluginError if the functions raise or leave parameters undecided.
        """
        node = self.node.clone(self.node.name)
        node.attrs.update(attrs)
        for tensor, values in zip(node.inputs, samples, strict=True):
            tensor.betensor = values.float()
        PluginForward(self.forward)(node)
        for tensor, span in zip(node.outputs, ranges, strict=True):
            flow.set_range(tensor, span)
        for tensor, values in zip(node.inputs, samples, strict=True):
            flow.set_range(tensor, flow.extrema(values))
        for tensor in (*node.constants.values(), *node.placeholders):
            flow.set_range(tensor, flow.extrema(tensor.betensor))
            flow.set_channel_ranges(tensor)
        flow.free(node)
        for tensor, params in zip(node.inputs, inputs, strict=True):
            apply(tensor, params)
        flow.decide(node, self.quantize)
        return replace(self, node=_reread(node))

    @property
    def outputs(self) -> list[QParams]:
        """The parameters of each output."""
        return [quantization(tensor) for tensor in self.node.outputs]

    def constants(self) -> dict[str, GraphTensor]:
        """Return constants as the file holds them."""
        return {key: file_tensor(key, tensor) for key, tensor in self.node.constants.items()}

    def params(self) -> dict[str, Any]:
        """Return parameters as the file holds them, with scale and zero point of weights and biases."""
        found = {key: plain(value, f"params[{key!r}]") for key, value in self.node.params.items()}
        for key in SCALED:
            if key in self.node.constants and f"{key}_scale" not in found:
                params = quantization(self.node.constants[key], 0)
                if params.scale.dim() == 0:
                    steps = self.node.constants[key].scale
                    assert steps is not None
                    found |= {f"{key}_scale": float(steps), f"{key}_zp": -int(params.zero_point)}
        return found


def functions_of(kind: str) -> tuple[LayerFunction, LayerFunction] | None:
    """Return the forward and quantize functions of a layer type, the highest versions; None unless both exist."""
    found: dict[Kind, LayerFunction] = {}
    for function in LAYERS:
        known = found.get(function.kind)
        if function.type.name == kind and (known is None or function.version > known.version):
            found[function.kind] = function
    return (found["forward"], found["quantize"]) if len(found) == 2 else None


def activations(node: Node) -> tuple[str, ...]:
    """Return the names of the tensors that a layer of Compass's vocabulary reads, without its constants."""
    keys = node.extra.get(CONSTANTS)
    names = [name for name in node.inputs if name is not None]
    return tuple(names[: len(names) - len(keys)]) if isinstance(keys, tuple) else tuple(names)


def plugin_layer(graph: Graph, node: Node, number: int, batch: int) -> PluginLayer | None:
    """Return the layer in the form that its plugin sees; None if no plugin has its type."""
    functions = functions_of(node.op)
    if functions is None:
        return None
    keys = node.extra.get(CONSTANTS)
    read = activations(node)
    made = PyNode(node.name, OpTypeValue(f"OpType.{node.op}"))
    made.inputs = [_tensor(graph.tensor(name)) for name in read]
    made.outputs = [_tensor(graph.tensor(name)) for name in node.outputs]
    for key, name in zip(keys if isinstance(keys, tuple) else (), node.inputs[len(read) :], strict=True):
        made.constants[key] = _tensor(graph.tensor(str(name)))
        made.constants[key].key_axis = made.constants[key].key_axis_c = 0
    made.params.update({key: theirs(value) for key, value in node.attrs.items()})
    made.attrs.update({"layer_id": str(number), "batch_size_in_IR": batch})
    made.graph = PyGraph(graph.name, set(graph.tensors), batch)
    return PluginLayer(made, *functions)


def _tensor(tensor: GraphTensor) -> PyTensor:
    made = PyTensor(tensor.name, TensorShape(tensor.shape))
    made.ir_shape, made.dtype, made.ir_dtype = TensorShape(tensor.shape), Dtype.FP32, Dtype.FP32
    if tensor.data is not None:
        made.betensor = tensor.data.float().clone()
    return made


def _reread(node: PyNode) -> PyNode:
    """Return a quantized layer as if it were read from its file: without the attributes and placeholders of a run."""
    # what the integer forward gets must be what the file holds, and nothing that the float run left
    again = node.clone(node.name)
    again.placeholders, again.quantized = [], True
    for key, tensor in again.constants.items():
        stored = file_tensor(key, tensor).data
        if stored is None:
            raise GraphError(f"layer {node.name!r}: constant {key!r} has no values.")
        if not torch.is_floating_point(stored):
            tensor.betensor = held_codes(stored.long())
    return again
