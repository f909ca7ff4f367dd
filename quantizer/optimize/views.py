"""The original's names for a graph and for a run, over our classes: PyGraph, QuantizeGraph, OptMaster."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import networkx as nx
from torch import Tensor

from quantizer.core.errors import FormatError
from quantizer.core.files import replace_files
from quantizer.core.library import Library, load_library
from quantizer.core.wording import suggestion
from quantizer.ir.formats import compass
from quantizer.ir.formats.compass_graph import CONSTANTS
from quantizer.ir.graph import Graph, Node
from quantizer.ir.graph import Tensor as GraphTensor
from quantizer.ops import load_built_ins
from quantizer.optimize.cfg import Options, read_cfg
from quantizer.optimize.comparing import runnable
from quantizer.optimize.running import Runner, batch_in_ir
from quantizer.optimize.steps import STEPS
from quantizer.optimize.work import PLATFORM, Say, Work
from quantizer.plugins.aipu.dtypes import Dtype, from_ours
from quantizer.plugins.aipu.node import PyGraph as LayerGraph
from quantizer.plugins.aipu.node import PyNode
from quantizer.plugins.aipu.optypes import OpTypeValue
from quantizer.plugins.aipu.tensor import PyTensor, TensorShape
from quantizer.plugins.layer import held_codes, theirs
from quantizer.plugins.layer_parameters import apply
from quantizer.plugins.layers_without_spec import activations


class PyGraph(LayerGraph):
    """The layers of a graph, in its order, sharing the tensors between them; the topology is a networkx.DiGraph.

    A view: changes to it do not change the underlying graph.
    """

    def __init__(self, graph: Graph, library: Library) -> None:
        written = compass.foreign(graph, library.specs)
        super().__init__(graph.name, set(written.tensors), batch_in_ir(graph))
        self._graph, self._library = graph, library
        self._tensors = {name: _tensor(tensor) for name, tensor in written.tensors.items()}
        self.nodes = [self._node(node, place) for place, node in enumerate(written.nodes)]
        self.input_tensors = tuple(self._tensors[name] for name in written.inputs)
        self.output_tensors = tuple(self._tensors[name] for name in written.outputs)
        self.net_: nx.DiGraph[PyNode] = nx.DiGraph()
        self.net_.add_nodes_from(self.nodes)
        makers = {id(tensor): node for node in self.nodes for tensor in node.outputs}
        for node in self.nodes:
            for tensor in node.inputs:
                self.net_.add_edge(makers[id(tensor)], node)
        for node in self.nodes:
            node.parents, node.children = tuple(self.net_.predecessors(node)), tuple(self.net_.successors(node))
            for tensor in node.outputs:
                tensor.pnode = node

    def forward(self, feeds: Mapping[str, Tensor]) -> list[Tensor]:
        """Return the outputs in the IR's order: codes (int64) if quantized.

        Every tensor of the view stores its values. feeds: real values for each input. GraphError for one that is
        missing or has another shape.
        """
        runner = Runner(self._library.specs, self._library.platform(PLATFORM).quantizer, batch_in_ir(self._graph))
        for name, _, values in runner.forward(self._graph, feeds):
            self._tensors[name].betensor = values
        return [tensor.betensor for tensor in self.output_tensors]

    def _node(self, node: Node, place: int) -> PyNode:
        made = PyNode(node.name, OpTypeValue(f"OpType.{node.op}"))
        read, keys = activations(node), node.extra.get(CONSTANTS)
        made.inputs = [self._tensors[name] for name in read]
        made.outputs = [self._tensors[name] for name in node.outputs]
        for key, name in zip(keys if isinstance(keys, tuple) else (), node.inputs[len(read) :], strict=True):
            made.constants[key] = self._tensors[str(name)]
        made.params.update({key: theirs(value) for key, value in node.attrs.items()})
        made.attrs["layer_id"] = str(place)
        made.quantized = node.attrs.get("unquantifiable") is False
        made.graph = self
        return made


class QuantizeGraph(PyGraph):
    """The graph that OptMaster works on: read from an IR, and written as one."""

    @classmethod
    def parse(cls, text: Path, blob: Path, library: Library | None = None) -> QuantizeGraph:
        """Return the graph of a float or quantized IR; FormatError or GraphError if it is invalid."""
        library = library or _library()
        return cls(runnable(compass.read(text, blob), library), library)

    def serialize(self, text: Path, blob: Path) -> None:
        """Write the graph as text and constants, both or neither."""
        lines, data = compass.to_bytes(compass.foreign(self._graph, self._library.specs))
        replace_files({blob: [data], text: lines}, FormatError)


class OptMaster:
    """A run of a cfg, step by step or as a whole."""

    # quiet by default
    def __init__(
        self,
        cfg: Path | Options,
        library: Library | None = None,
        say: Say = lambda text: None,  # noqa: ARG005
    ) -> None:
        options = cfg if isinstance(cfg, Options) else read_cfg(cfg)
        self.work = Work(options, library or _library(), say)
        self.done: list[str] = []

    @property
    def steps(self) -> list[str]:
        """The names of all steps in their order."""
        return [step.__name__ for step in STEPS]

    @property
    def g(self) -> QuantizeGraph:
        """The float graph, once it is read."""
        return QuantizeGraph(self.work.float_graph, self.work.library)

    @property
    def qg(self) -> QuantizeGraph:
        """The quantized graph, once there is one."""
        return QuantizeGraph(self.work.quantized_graph, self.work.library)

    def run(self, until: str | None = None) -> OptMaster:
        """Run the remaining steps up to *until*, included; FormatError for an unknown step."""
        if until is not None and until not in self.steps:
            raise FormatError(f"step {until!r}: no such step.{suggestion(until, self.steps, 'Steps')}")
        last = len(STEPS) if until is None else self.steps.index(until) + 1
        for step in STEPS[len(self.done) : last]:
            self.work = step(self.work)
            self.done.append(step.__name__)
        return self


def _library() -> Library:
    load_built_ins()
    return load_library()


def _tensor(tensor: GraphTensor) -> PyTensor:
    """Return a tensor with the parameters of its codes."""
    made = PyTensor(tensor.name, TensorShape(tensor.shape))
    kind: Any = from_ours(tensor.dtype)
    made.ir_shape, made.dtype, made.ir_dtype = TensorShape(tensor.shape), kind, kind
    if tensor.qparams is not None:
        apply(made, replace(tensor.qparams, dtype=tensor.dtype))
        made.dtype = kind
    if tensor.data is not None:
        made.betensor = held_codes(tensor.data.long()) if tensor.dtype.is_integer else tensor.data.float()
    return made


__all__ = ["Dtype", "OptMaster", "PyGraph", "PyNode", "QuantizeGraph"]
