"""Converts a trained network to a quantized graph with the same codes, and runs such a graph on real numbers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal

from torch import Tensor, fx, nn

from quantizer.core.case import AxisOrder
from quantizer.core.errors import GraphError, UnsupportedError
from quantizer.core.library import load_library
from quantizer.core.platform_settings import Quantizer
from quantizer.ir.graph import Graph
from quantizer.nn.calls import FUNCTIONS, METHODS, MODULES, Call, Meaning
from quantizer.nn.fixed import Fixed
from quantizer.nn.lower import INPUT, Builder, Coded, Waiting
from quantizer.nn.trace import frozen, traced
from quantizer.numerics.qparams import Parameters
from quantizer.numerics.quantize import dequantize, quantize
from quantizer.ops import load_built_ins
from quantizer.runtime.executor import execute


def to_graph(
    module: nn.Module,
    *examples: Tensor,
    platform: str = "ideal",
    order: AxisOrder = "channels_first",
    name: str = "net",
    bias: Literal["exact", "nearest"] = "exact",
) -> Graph:
    """Return *module* at inference as a quantized graph: its scales, its codes of weights, every result on its grid.

    examples: inputs of the shapes that the graph will have, channels first. The modules' stored scales are used, as
    under FIXED; stochastic rounding becomes rounding to nearest. With scales that are powers of two the codes are
    exactly those of the float forward, as long as its float32 sums are exact (below 2**24 units). order: channels_last
    is the order of Compass files. bias: "nearest" rounds a bias between two units of a sum. GraphError or
    UnsupportedError for a network that has no such graph: an operator without a grid after it, a float layer, a batch
    norm outside ConvBN_fix.
    """
    library = load_library()
    load_built_ins()
    made = traced(frozen(module), examples)
    builder = Builder(library.specs, library.platform(platform), order)
    values: dict[fx.Node, Any] = {}
    outputs: list[Coded] = []
    for node in made.graph.nodes:
        if node.op == "placeholder":
            # a placeholder with a default is an argument that the examples leave out
            values[node] = None if node.args else Waiting(INPUT, node.name, {}, node.meta["shape"])
        elif node.op == "output":
            results = node.args[0] if isinstance(node.args[0], tuple | list) else (node.args[0],)
            outputs = [builder.coded(values[result]) for result in results]
        # a result that is no tensor, such as a size
        elif node.meta.get("shape") is None:
            values[node] = None
        else:
            values[node] = _value(made, node, values, builder, nearest=bias == "nearest")
    return builder.graph(name, outputs)


def run_graph(graph: Graph, *inputs: Tensor) -> Tensor | tuple[Tensor, ...]:
    """Quantize real *inputs*, execute a quantized graph, and return its dequantized outputs.

    inputs: channels first. GraphError for a wrong number of inputs or a wrong shape.
    """
    if len(inputs) != len(graph.inputs):
        raise GraphError(f"graph {graph.name!r}: {len(graph.inputs)} inputs, {len(inputs)} given.")
    load_built_ins()
    last = any(node.order == "channels_last" for node in graph.nodes)
    provided = (node.parameters for node in graph.nodes if isinstance(node.parameters, Parameters))
    quantizer = next((parameters.platform.quantizer for parameters in provided), Quantizer())
    feeds = {}
    for name, values in zip(graph.inputs, inputs, strict=True):
        params = graph.tensor(name).qparams
        assert params is not None
        arranged = values.movedim(1, -1) if last and values.dim() > 2 else values
        feeds[name] = quantize(arranged, params, quantizer)
    found = execute(graph, feeds, load_library().specs).values
    results = []
    for name in graph.outputs:
        params = graph.tensor(name).qparams
        assert params is not None
        values = dequantize(found[name], params)
        results.append(values.movedim(-1, 1) if last and values.dim() > 2 else values)
    return results[0] if len(results) == 1 else tuple(results)


def _value(
    made: fx.GraphModule, node: fx.Node, values: Mapping[fx.Node, Any], builder: Builder, *, nearest: bool
) -> Any:
    module = made.get_submodule(str(node.target)) if node.op == "call_module" else None
    label = str(node.target) if module is not None else node.name
    meaning = _meaning(node, module, label)
    args = fx.node.map_arg(node.args, lambda item: values[item])
    kwargs = fx.node.map_arg(dict(node.kwargs), lambda item: values[item])
    first = args[0] if isinstance(args, tuple) and args else None
    if not isinstance(first, Coded | Waiting | list | tuple):
        raise UnsupportedError(f"{label}: its first operand is not a tensor of activations: it has no operator here.")
    return meaning(Call(builder, label, module, _sequence(args), kwargs, node.meta["shape"], nearest))


def _sequence(args: object) -> Sequence[Any]:
    assert isinstance(args, tuple | list)
    return args


def _meaning(node: fx.Node, module: nn.Module | None, label: str) -> Meaning:
    if module is not None:
        kind = type(module).__name__
        for cls, meaning in MODULES:
            if isinstance(module, cls):
                if isinstance(module, nn.modules.conv._ConvNd | nn.Linear) and not isinstance(module, Fixed):
                    raise UnsupportedError(f"{label}: {kind} is float. Use {kind}_fix, which has codes.")
                return meaning
        if isinstance(module, nn.modules.batchnorm._BatchNorm):
            raise UnsupportedError(f"{label}: {kind} divides by a root, which no grid holds. Fold it: use ConvBN_fix.")
        known = ", ".join(sorted(cls.__name__ for cls, _ in MODULES))
        raise UnsupportedError(f"{label}: {kind} has no operator here. Known: {known}.")
    found = METHODS.get(str(node.target)) if node.op == "call_method" else FUNCTIONS.get(node.target)
    if found is None:
        called = getattr(node.target, "__name__", str(node.target))
        raise UnsupportedError(f"{label}: {called} has no operator here. Leave it to the caller, or use a known one.")
    return found
