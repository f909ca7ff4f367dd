"""Runs graphs of codes: integer nodes on codes, float nodes on the values of codes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, cast

import torch
from torch import Tensor

from quantizer.core.errors import GraphError, UnsupportedError
from quantizer.core.library import load_library
from quantizer.ir.graph import Graph, Node, container, nearest
from quantizer.numerics.qparams import Parameters, QParams
from quantizer.numerics.quantize import dequantize, quantize
from quantizer.runtime.executor import run_node
from quantizer.runtime.integer import CODES, OUTPUTS, PLATFORM, REASONS, VALUES, check_declared
from quantizer.runtime.onnx.kernels import specs
from quantizer.runtime.onnx.unfolded import FLOAT
from quantizer.runtime.single_nodes import alone
from quantizer.runtime.torch_executor import TorchExecutor


class IntegerExecutor:
    """Runs the result of `integer_graph`."""

    def __init__(self, graph: Graph) -> None:
        """Take *graph*, which names its platform; GraphError if `integer_graph` did not make it.

        Raises UnsupportedError that names every node whose platform does not declare the node's parameters: bits,
        granularity, zero points, signs, sums that may leave the accumulator. Such a graph is refused wherever
        it comes from.
        """
        self.graph = graph
        self._codes, self._values, self.reasons = (
            cast("Mapping[str, str]", graph.extra.get(key, {})) for key in (CODES, VALUES, REASONS)
        )
        integers = [node for node in graph.order if isinstance(node.parameters, Parameters)]
        platform = graph.extra.get(PLATFORM)
        if not isinstance(platform, str):
            raise GraphError(f"graph {graph.name!r}: has no platform. Build it with integer_graph.")
        self._outputs = cast("Sequence[str]", graph.extra.get(OUTPUTS, graph.outputs))
        self._platform = load_library().platforms[platform]
        self._kept: dict[str, TorchExecutor] = {}
        refused = [text for node in integers if (text := _undeclared(node, graph)) is not None]
        if refused:
            raise UnsupportedError(f"graph {graph.name!r}: {'; '.join(refused)}.")

    @property
    def floats(self) -> list[str]:
        """Return the nodes that compute in float because the platform has no integer function for them.

        `reasons` says why, by the node's name.
        """
        return [node.name for node in self.graph.order if not isinstance(node.parameters, Parameters)]

    def forward(self, inputs: Any, output_names: Sequence[str] | None = None) -> list[Tensor]:
        """Return the named tensors in that order, by default the model's outputs.

        inputs: by name, in order, or one tensor. They are real numbers, which are quantized here, or codes if the name
        belongs to a tensor of codes. Names of the model's tensors of codes give codes in the type of the file, all
        others real numbers.
        """
        names = list(self._outputs if output_names is None else output_names)
        places = [self.place(name) for name in names]
        values = self.run(inputs)
        return [self._shown(values[tensor], tensor, codes=codes) for tensor, codes in places]

    __call__ = forward

    def shows(self, name: str) -> bool:
        """Return whether *name* is a tensor that `forward` can return."""
        return name in self._codes or self._values.get(name, name) in self.graph.tensors

    def codes(self, inputs: Any, output_names: Sequence[str] | None = None) -> list[Tensor]:
        """Return the codes of the named tensors, int64; GraphError for a tensor without codes."""
        names = list(self._outputs if output_names is None else output_names)
        tensors = [self.place(name)[0] for name in names]
        for name, tensor in zip(names, tensors, strict=True):
            if self.graph.tensor(tensor).qparams is None:
                raise GraphError(f"graph {self.graph.name!r}: {name!r} is not quantized: it has no codes.")
        values = self.run(inputs)
        return [values[tensor] for tensor in tensors]

    def run(self, inputs: Any) -> dict[str, Tensor]:
        """Return every tensor: int64 codes if it has parameters, else real numbers."""
        values = {name: _wide(t.data, t.qparams) for name, t in self.graph.tensors.items() if t.data is not None}
        values |= self._fed(inputs)
        for node in self.graph.order:
            values |= zip(node.outputs, self._operate(node, values), strict=True)
        return values

    def _operate(self, node: Node, values: Mapping[str, Tensor]) -> list[Tensor]:
        spec = specs().get(node.op)
        if spec is None:
            return self._as_onnx_has_it(node, values)
        named = {key: name for key, name in zip(spec.inputs, node.inputs, strict=False) if name is not None}
        if isinstance(node.parameters, Parameters):
            return list(run_node(spec, node, {key: values[name] for key, name in named.items()}).tensors)
        operands = {key: self._real(values[name], name) for key, name in named.items()}
        # a float node: on the values of codes, and its results become codes again
        return self._stored(node, run_node(spec, node, operands).tensors)

    def _as_onnx_has_it(self, node: Node, values: Mapping[str, Tensor]) -> list[Tensor]:
        """Run a node that the registry cannot express by its ONNX kernel."""
        if node.name not in self._kept:
            # built once for each node, because building verifies the graph
            self._kept[node.name] = alone(self._in_float(), node)
        operands = {name: self._real(values[name], name) for name in node.reads}
        return self._stored(node, self._kept[node.name].forward(operands, node.outputs))

    def _in_float(self) -> Graph:
        """Return the graph with tensors of real numbers in place of codes that have parameters."""
        coded = (tensor for tensor in self.graph.tensors.values() if tensor.qparams is not None)
        return self.graph.with_tensors(*(replace(t, dtype=FLOAT, data=None, qparams=None) for t in coded))

    def _stored(self, node: Node, results: Sequence[Tensor]) -> list[Tensor]:
        """Return float results as the graph holds them: as codes if their tensors have parameters."""
        params = (self.graph.tensor(name).qparams for name in node.outputs)
        return [
            result if own is None else self._quantized(result, own) for result, own in zip(results, params, strict=True)
        ]

    def _quantized(self, values: Tensor, params: QParams) -> Tensor:
        return quantize(values, params, self._platform.quantizer)

    def _real(self, values: Tensor, name: str) -> Tensor:
        params = self.graph.tensor(name).qparams
        return values if params is None else dequantize(values, params).float()

    def _shown(self, values: Tensor, name: str, *, codes: bool) -> Tensor:
        # codes are int64 inside; the caller gets the type of the file
        return values.to(container(self.graph.tensor(name).dtype)) if codes else self._real(values, name)

    def place(self, name: str) -> tuple[str, bool]:
        """Return the tensor to which a name of the model refers, and whether it refers to the codes."""
        if name in self._codes:
            return self._codes[name], True
        found = self._values.get(name, name)
        if found not in self.graph.tensors:
            known = [*self.graph.tensors, *self._codes, *self._values]
            raise GraphError(f"graph {self.graph.name!r}: no tensor {name!r}.{nearest(name, known)}")
        return found, False

    def _fed(self, inputs: Any) -> dict[str, Tensor]:
        graph = self.graph
        if isinstance(inputs, Tensor):
            inputs = [inputs]
        if not isinstance(inputs, Mapping):
            if len(inputs) != len(graph.inputs):
                raise GraphError(
                    f"graph {graph.name!r}: {len(inputs)} tensors were fed: must be {len(graph.inputs)} inputs."
                )
            inputs = dict(zip(graph.inputs, inputs, strict=True))
        if set(inputs) != set(graph.inputs):
            raise GraphError(
                f"graph {graph.name!r}: fed {', '.join(inputs)}, its inputs are {', '.join(graph.inputs)}."
            )
        return {name: self._input(name, torch.as_tensor(value)) for name, value in inputs.items()}

    def _input(self, name: str, value: Tensor) -> Tensor:
        tensor = self.graph.tensor(name)
        if tuple(value.shape) != tensor.shape:
            raise GraphError(
                f"graph {self.graph.name!r}: {name!r} was fed shape {list(value.shape)}, must be {list(tensor.shape)}."
            )
        if tensor.qparams is None:
            return value
        # floats are real numbers, integers are codes
        return self._quantized(value, tensor.qparams) if value.is_floating_point() else value.long()


def _undeclared(node: Node, graph: Graph) -> str | None:
    try:
        check_declared(node, graph)
    except UnsupportedError as err:
        return f"node {node.name!r} ({node.op}): {err}"
    return None


def _wide(data: Tensor, params: QParams | None) -> Tensor:
    return data if params is None else data.long()
