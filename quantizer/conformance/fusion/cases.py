"""Cases of a small graph: sizes, data, and which tensors hold codes, all by hash; and the graph that they give."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import onnx
import torch
from onnx import TensorProto, helper, numpy_helper

from quantizer.conformance.generation.choice_sources import HashChoices
from quantizer.conformance.generation.domains import draw
from quantizer.conformance.generation.fillers import FILLERS, Site
from quantizer.conformance.generation.hashing import key
from quantizer.core.expressions import Expression
from quantizer.core.graph_spec import GraphNode, GraphSpec
from quantizer.core.shapes import evaluate
from quantizer.core.spec import Domain
from quantizer.ir.formats.onnx import from_model
from quantizer.ir.graph import Graph
from quantizer.numerics.pinned import pinned
from quantizer.runtime.models.engines import Values
from quantizer.runtime.models.parts import QUANTIZE, with_constant_codes
from quantizer.runtime.qdq import with_qdq
from quantizer.runtime.quantization import dispatch_graph, quantize_graph
from quantizer.runtime.setting import Setting
from quantizer.runtime.tensor_config import QuantizationProperty as P

MIDDLE = 128
"""Half of the codes of 8 bits."""
OPSET = 18
IR_VERSION = 9
NARROW = Setting(reduce_range=True)
"""Weights have 7 bits. Pairs of 8-bit products saturate on processors without VNNI, which is a separate defect."""
DATA = ("random", "random", "corners")
OWN = "own"
ONE_SCALE = "one scale"
NARROWED = "narrow"
SCHEMES = (
    *(OWN, "symmetric", NARROWED, "powers of two", OWN, "symmetric", "powers of two", "symmetric powers of two"),
    ONE_SCALE,
)
"""How activations get their numbers, case by case. Engines compare these numbers to choose what they fuse. Separate
ranges never give two tensors equal numbers, and never give a relu a zero point above its lowest code. One scale: all
activations have the largest scale, with different zero points. Narrow: results have half of their scales, so that
many saturate between two nodes.
"""
POLICIES = {
    OWN: P.ASYMMETRICAL,
    "symmetric": P.SYMMETRICAL,
    ONE_SCALE: P.ASYMMETRICAL,
    NARROWED: P.ASYMMETRICAL,
    "powers of two": P.ASYMMETRICAL | P.POWER_OF_2,
    "symmetric powers of two": P.SYMMETRICAL | P.POWER_OF_2,
}
ONE_SIGN_IN = 3
"""In one of this many cases, each tensor has values of one sign: zero points at an end, sums that are all negative."""
LARGEST_ONE_IN = 4
"""One size in this many is the largest of its domain: a multiple of a kernel's block and a rest."""
SQUARE_ONE_IN = 6
"""In one of this many cases, each size equals the one before it if its domain allows it, because rewrites distinguish
tensors by their shapes."""


@dataclass(frozen=True)
class GraphCase:
    """One graph, and everything that decides its numbers."""

    graph: str
    form: int
    """The number of the spec's form: which results hold codes."""
    sizes: Mapping[str, int]
    seed: int
    data: str
    scheme: str = OWN
    """How activations get scales and zero points: a key of POLICIES."""
    nodes: tuple[str, ...] = ()
    """The outputs, if only a part of the graph is requested."""

    def __str__(self) -> str:
        """The case in one line."""
        sizes = ", ".join(f"{name}={value}" for name, value in self.sizes.items())
        until = f", until {', '.join(self.nodes)}" if self.nodes else ""
        numbers = (
            "" if self.scheme == OWN else f", {self.scheme if self.scheme == ONE_SCALE else f'{self.scheme} scales'}"
        )
        return f"{self.graph}[{self.form}] {sizes}, {self.data} data of seed {self.seed}{numbers}{until}"


@dataclass(frozen=True)
class Built:
    """A quantized graph of ONNX's operators, and its inputs."""

    graph: Graph
    feeds: Values


def cases(spec: GraphSpec, count: int, seed: int = 0) -> Iterator[GraphCase]:
    """Yield *count* cases of each form; the same ones for the same seed."""
    for form in range(len(spec.quantized)):
        for index in range(count):
            chooser = HashChoices(key(seed, spec.graph, str(form), str(index)), {})
            bound = _sizes(spec, chooser)
            drawn, data = chooser.integer("seed", 0, (1 << 31) - 1), chooser.option("data", DATA)
            yield GraphCase(spec.graph, form, bound, drawn, data, SCHEMES[index % len(SCHEMES)])


def _sizes(spec: GraphSpec, chooser: HashChoices) -> dict[str, Any]:
    """Return a value for each dimension; in some cases, one value for all dimensions that may have it."""
    bound: dict[str, Any] = {}
    square = chooser.integer("square", 1, SQUARE_ONE_IN) == 1
    for name, domain in spec.dims.items():
        drawn, before = _size(name, domain, chooser, bound), list(bound.values())[-1:]
        bound[name] = before[0] if square and before and _may_be(domain, before[0], bound) else drawn
    return bound


def _may_be(domain: Domain, value: int, bound: Mapping[str, Any]) -> bool:
    """Return whether a size lies between the ends of its domain."""
    ends = [int(end(bound)) for end in (domain.min, domain.max) if end is not None]
    return len(ends) == 2 and ends[0] <= value <= ends[1]


def _size(name: str, domain: Domain, chooser: HashChoices, bound: Mapping[str, Any]) -> Any:
    """Return a value of a dimension's domain; in domains of three values or more, often the largest."""
    ends = [int(end(bound)) for end in (domain.min, domain.max) if end is not None]
    if len(ends) == 2 and ends[1] - ends[0] > 1 and chooser.integer(f"{name}/largest", 1, LARGEST_ONE_IN) == 1:
        return ends[1]
    return draw(name, domain, chooser, bound)


@pinned()
def build(spec: GraphSpec, case: GraphCase) -> Built:
    """Return the quantized graph of a case; scales are calibrated on its own inputs, which are then moved to codes.

    Executors may round a real input between two codes differently, so all real inputs lie on codes.
    """
    source = from_model(_model(spec, case))
    feeds = {name: torch.from_numpy(_filled(case, name, source.tensor(name).shape)) for name in source.inputs}
    whole = with_constant_codes(with_qdq(quantize_graph(dispatch_graph(source), [feeds], _setting(case))))
    # every result is quantized first, because only then are all scales known; some stay real numbers in this form
    open_ones = [name for name in spec.nodes if name not in spec.quantized[case.form] and name in source.tensors]
    graph = _showing_codes(_unquantized(whole, open_ones)).with_(name=spec.graph)
    if case.scheme == ONE_SCALE:
        graph = _on_one_scale(graph)
    elif case.scheme == NARROWED:
        graph = _narrowed(graph)
    return Built(graph, {**feeds, **_on_codes(graph, feeds)})


def _setting(case: GraphCase) -> Setting:
    """Return how the tensors of a case are quantized."""
    return replace(NARROW, activations=P.PER_TENSOR | P.LINEAR | POLICIES[case.scheme])


def _on_one_scale(graph: Graph) -> Graph:
    """Return *graph* with one scale for all activations: the largest of theirs.

    Each range keeps its lower end, moved by one more code from tensor to tensor, so that no two zero points are equal
    by chance.
    """
    numbers = {str(node.inputs[1]): str(node.inputs[2]) for node in graph.nodes if node.op == QUANTIZE}
    found = {name: (graph.tensor(name).data, graph.tensor(zero).data) for name, zero in numbers.items()}
    largest = max(scale for scale, _ in found.values() if scale is not None)
    changed = []
    for place, (name, (scale, zero)) in enumerate(found.items()):
        assert scale is not None
        assert zero is not None
        ends = torch.iinfo(zero.dtype)
        own = torch.round((zero.double() - ends.min) * (scale.double() / largest))
        # towards the middle, so that the zero point stays within the codes
        moved = ends.min + own + torch.where(own > MIDDLE, -place, place)
        changed += [
            replace(graph.tensor(name), data=largest),
            replace(graph.tensor(numbers[name]), data=moved.to(zero.dtype)),
        ]
    return graph.with_tensors(*changed)


def _narrowed(graph: Graph) -> Graph:
    """Return *graph* with half of the scale of each result of a node; one with the scale of an input keeps it."""
    scales = {str(node.inputs[0]): str(node.inputs[1]) for node in graph.nodes if node.op == QUANTIZE}
    held = {name: graph.tensor(scale) for name, scale in scales.items()}
    # pads, reshapes and the like keep their operand's numbers
    kept = [item.data for name, item in held.items() if name in graph.inputs]
    results = ((item, item.data) for item in held.values() if item.data is not None and item.data not in kept)
    return graph.with_tensors(*(replace(item, data=scale / 2) for item, scale in results))


def _on_codes(graph: Graph, feeds: Values) -> dict[str, torch.Tensor]:
    """Return, for each quantized input, the real values of its nearest codes."""
    found = {}
    for node in graph.nodes:
        name = str(node.inputs[0])
        if node.op == QUANTIZE and name in feeds:
            scale, zero = (graph.tensor(str(number)).data for number in node.inputs[1:3])
            assert scale is not None
            assert zero is not None
            ends = torch.iinfo(zero.dtype)
            codes = (torch.round(feeds[name] / scale) + zero).clamp(ends.min, ends.max)
            found[name] = (codes - zero) * scale
    return found


def _model(spec: GraphSpec, case: GraphCase) -> onnx.ModelProto:
    bound = dict(case.sizes)
    outputs = list(case.nodes) or spec.outputs
    kept = _needed(spec, outputs)
    read = {name for node in kept.values() for name in node.reads}
    constants = {
        name: _filled(case, name, evaluate(shape, bound)) for name, shape in spec.weights.items() if name in read
    }
    constants |= {
        name: np.array([int(value(bound)) for value in values], np.int64)
        for name, values in spec.numbers.items()
        if name in read
    }
    constants |= {name: np.array(value, np.float32) for name, value in spec.reals.items() if name in read}
    nodes = [
        helper.make_node(node.op, node.reads, [name], name, **{k: _value(v, bound) for k, v in node.attrs.items()})
        for name, node in kept.items()
    ]
    inputs = [
        helper.make_tensor_value_info(name, TensorProto.FLOAT, evaluate(shape, bound))
        for name, shape in spec.inputs.items()
        if name in read
    ]
    made = [helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in outputs]
    held = [numpy_helper.from_array(values, name) for name, values in constants.items()]
    graph = helper.make_graph(nodes, spec.graph, inputs, made, held)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", OPSET)], ir_version=IR_VERSION)
    return onnx.shape_inference.infer_shapes(model, strict_mode=True)


def _needed(spec: GraphSpec, outputs: list[str]) -> dict[str, GraphNode]:
    """Return, in order, the nodes on which *outputs* depend."""
    wanted = set(outputs)
    # nodes stand in order, so each node is seen before those that it reads
    for name in reversed(spec.nodes):
        if name in wanted:
            wanted.update(spec.nodes[name].reads)
    return {name: node for name, node in spec.nodes.items() if name in wanted}


def _value(value: Any, bound: Mapping[str, Any]) -> Any:
    if isinstance(value, list):
        return [_value(item, bound) for item in value]
    return int(value(bound)) if isinstance(value, Expression) else value


def _filled(case: GraphCase, name: str, shape: tuple[int, ...]) -> np.ndarray[Any, np.dtype[np.float32]]:
    """Return random values in a separate range: up to eight times as wide as another tensor's, and seldom symmetric.

    Scales that are powers of two are meant to be equal, so the ranges have one exponent.
    """
    chooser = HashChoices(key(case.seed, name), {})
    together = P.POWER_OF_2 in POLICIES[case.scheme]
    whole = HashChoices(case.seed, {})
    # one exponent for all tensors where scales are powers of two, a separate one otherwise
    exponents = whole if together else chooser
    width = 2.0 ** exponents.integer("exponent", -1, 2) * (1 + chooser.integer("width", 0, 255) / 256)
    one_sign = case.scheme != ONE_SCALE and whole.integer("one sign", 1, ONE_SIGN_IN) == 1
    share = float(chooser.integer("sign", 0, 1)) if one_sign else chooser.integer("low", 0, 16) / 16
    site = Site(name, "activation", tuple(shape), -width * share, width * (1 - share), None, case.seed)
    return FILLERS[case.data](site).astype(np.float32)


def _showing_codes(graph: Graph) -> Graph:
    """Return *graph* with the codes of its outputs as outputs.

    Dequantizations that only fed the old outputs are removed.
    """
    outputs = tuple(f"{name}#codes" for name in graph.outputs)
    ends = {f"{name}#dequantize" for name in graph.outputs if not graph.consumers.get(name)}
    nodes = tuple(node for node in graph.nodes if node.name not in ends)
    used = {*graph.inputs, *outputs, *(name for node in nodes for name in (*node.reads, *node.outputs))}
    return graph.with_(nodes=nodes, outputs=outputs, tensors={n: t for n, t in graph.tensors.items() if n in used})


def _unquantized(graph: Graph, names: list[str]) -> Graph:
    """Return *graph* without the two nodes that quantize the results of *names*."""
    dropped = {f"{name}{end}" for name in names for end in ("#quantize", "#dequantize")}
    same = {f"{name}#float": name for name in names}
    nodes = [
        replace(node, outputs=tuple(same.get(name, name) for name in node.outputs))
        for node in graph.nodes
        if node.name not in dropped
    ]
    used = {*graph.inputs, *graph.outputs, *(name for node in nodes for name in (*node.reads, *node.outputs))}
    return graph.with_(nodes=tuple(nodes), tensors={n: t for n, t in graph.tensors.items() if n in used})
