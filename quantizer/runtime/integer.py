"""Quantized ONNX graphs on integers: each operator that a platform has runs as that platform's integer function.

Between quantizations an ONNX model computes in float. The parameters of every tensor are read from the quantizations.
If operands and result of a registry operator have parameters and a scheme of the platform fits, the operator gets the
numbers that the platform provides for them. Operations that the platform does not declare stay float, on the values of
codes, and their results are quantized.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import cast

import torch

from quantizer.core.case import AttrValue
from quantizer.core.errors import ConstraintError, GraphError, UnsupportedError
from quantizer.core.library import load_library
from quantizer.core.platforms import Platform
from quantizer.core.rooms import graph_platform
from quantizer.core.schemes import Scheme
from quantizer.core.shapes import variables
from quantizer.core.spec import Input, Spec
from quantizer.ir.graph import ON_CODES, Graph, Node, Tensor, container, nearest
from quantizer.ir.verify import verify
from quantizer.numerics.provided_request import ProvidedRequest
from quantizer.numerics.qparams import Constant, Parameters, QParams
from quantizer.numerics.quantize import dequantize, quantize
from quantizer.numerics.request import Request
from quantizer.numerics.rules import own_codes, same_numbers
from quantizer.ops import REGISTRY
from quantizer.runtime.declared import Provided, check_accumulator, declared_scheme
from quantizer.runtime.engines.builtin import BuiltinEngine
from quantizer.runtime.file_constants import saturates, usable_constants
from quantizer.runtime.fixed_parameters import other_parameters, refusal_of_fixed
from quantizer.runtime.grids import EXACT, Grids, spread
from quantizer.runtime.hooks import is_quantable
from quantizer.runtime.onnx.kernels import specs
from quantizer.runtime.onnx.registry_form import mixed_form
from quantizer.runtime.onnx.unfolded import unfolded
from quantizer.runtime.qdq import with_qdq

CODES, VALUES, REASONS, PLATFORM = "integer.codes", "integer.values", "integer.reasons", "integer.platform"
"""Keys of Graph.extra: tensor of the model -> the tensor of the integer graph that holds its codes or values; node ->
why it is computed in float; the name of the platform."""
OUTPUTS = "integer.outputs"
"""Key of Graph.extra: the outputs by the model's names, because two of them may be one tensor of the integer graph."""
SHOWN = 3
"""The largest number of nodes that one error lists with their reasons."""
QUANTIZED = ("QuantizeLinear", "DequantizeLinear", "DynamicQuantizeLinear", "ConvInteger", "MatMulInteger")


def integer_graph(graph: Graph, platform: str | None = None, inputs: Mapping[str, torch.Tensor] | None = None) -> Graph:
    """Return a quantized graph (from `quantize_graph`, or a file with QDQ or QLinear operators) as a graph of codes.

    Every tensor with parameters holds codes; nodes that the platform computes on codes have its `Parameters`. Nodes
    that it does not declare (bits, granularity, zero points, signs, sums that leave its accumulator) stay float between
    their quantizations, as QDQ means it: as an operator of the registry if there is one, else as ONNX's own. The
    executor's `reasons` say why, even if no node computes on integers. Shapes are those that *inputs* have (codes or
    real numbers, as `IntegerExecutor.forward` takes them), where sizes are free. Run it with
    `runtime.integer_executor.IntegerExecutor`. Without *platform*, the default for such graphs is used
    (`core.rooms.graph_platform`).

    Raises ValueError for an unknown platform, UnsupportedError with every node that no kernel runs, GraphError if the
    graph has no quantization.
    """
    known, platform = load_library().platforms, platform or graph_platform()
    if platform not in known:
        raise ValueError(f"platform {platform!r}: no such platform.{nearest(platform, known)}")
    if any(is_quantable(node) for node in graph.nodes):
        # configurations of quantize_graph are written as QDQ nodes, so that both kinds of graphs take one path
        graph = with_qdq(graph)
    floats = unfolded(graph)
    if not floats.params and not any(op in QUANTIZED or op.startswith("QLinear") for op in graph.operators):
        raise GraphError(
            f"graph {graph.name!r}: no tensor is quantized: use quantize_graph, or a QDQ or QLinear model."
        )
    fed = {name: _values(given, floats.params.get(name)) for name, given in (inputs or {}).items()}
    form = mixed_form(floats.graph, fed, floats.params)
    grids = spread(form.graph, floats.params, floats.values, form.origins)
    work = _Work(grids, known[platform], floats.constants, form.kept)
    made = work.graph()
    values = {name: grids.renamed(found) for name, found in floats.values.items()}
    codes = {name: grids.renamed(found) for name, found in floats.codes.items()}
    # a tensor that a removed node made is no longer there
    codes = {name: found for name, found in codes.items() if found in made.tensors}
    return made.with_(
        outputs=tuple(grids.renamed(name) for name in made.outputs),
        extra={
            **made.extra,
            CODES: codes,
            VALUES: values,
            REASONS: work.reasons,
            PLATFORM: platform,
            OUTPUTS: graph.outputs,
        },
    )


def with_integers(graph: Graph) -> Graph:
    """Return the result of `integer_graph`; GraphError with the nodes' reasons if all nodes compute in float."""
    if has_integers(graph):
        return graph
    reasons = float_reasons(graph)
    shown = [f"node {name!r} ({graph.node(name).op}): {why}" for name, why in list(reasons.items())[:SHOWN]]
    left = len(reasons) - len(shown)
    raise GraphError(
        f"graph {graph.name!r}: platform {graph.extra.get(PLATFORM)!r} has no integer function for any of its "
        f"operators: {'; '.join(shown)}{f'; and {left} more' if left else ''}."
    )


def has_integers(graph: Graph) -> bool:
    """Return whether any node of the result of `integer_graph` computes on integers."""
    return any(isinstance(node.parameters, Parameters) for node in graph.nodes)


def float_reasons(graph: Graph) -> Mapping[str, str]:
    """Return for each node that the result of `integer_graph` computes in float: its name -> the reason."""
    return cast("Mapping[str, str]", graph.extra.get(REASONS, {}))


@dataclass
class _Work:
    """The graph of codes under construction."""

    grids: Grids
    platform: Platform
    constants: Mapping[str, torch.Tensor]
    """Constants whose codes are in the file."""
    kept: Mapping[str, str]
    """Node that stays an ONNX operator -> the reason."""
    reasons: dict[str, str] = field(default_factory=dict)
    """Node -> the reason why it stays float."""

    def graph(self) -> Graph:
        source = self.grids.graph
        tensors = {name: self._coded(tensor) for name, tensor in source.tensors.items()}
        nodes: list[Node] = []
        for node in source.order:
            try:
                nodes.append(self._integer(node, tensors))
            except (GraphError, ConstraintError, UnsupportedError) as err:
                self.reasons[node.name] = str(err).rstrip(".")
                nodes.append(node)
        found = source.with_(nodes=tuple(nodes), tensors=tensors)
        verify(found)
        return found

    def _coded(self, tensor: Tensor) -> Tensor:
        params = self.grids.params.get(tensor.name)
        if params is None:
            return tensor
        data = self.constants.get(tensor.name)
        if data is None and tensor.data is not None:
            # the file has no codes for it: its values lie on the grid, so that any rounding finds the same codes
            data = self._codes(tensor.data, params).to(container(params.dtype))
        return replace(tensor, dtype=params.dtype, data=data, qparams=params)

    def _codes(self, values: torch.Tensor, params: QParams) -> torch.Tensor:
        return quantize(values.double(), params, EXACT)

    def _integer(self, node: Node, tensors: dict[str, Tensor]) -> Node:
        """Return the node with the platform's numbers; UnsupportedError or GraphError says why it stays float."""
        if node.name in self.kept:
            raise UnsupportedError(f"no operator here expresses it: {self.kept[node.name]}")
        spec, name = specs()[node.op], self.platform.platform
        named = self.platform.ops_named_for is not None and self.platform.ops_named_for in spec.names
        if not named and self.platform.ops is not None and node.op not in self.platform.ops:
            raise UnsupportedError(f"platform {name!r} has no operator {node.op}")
        if REGISTRY.find(node.op, "quantized", self.platform.places) is None or len(spec.outputs) != 1:
            raise UnsupportedError(f"platform {name!r} has no integer function for {node.op}")
        operands = {key: n for key, n in zip(spec.inputs, node.inputs, strict=True) if n is not None}
        given = {key: self.grids.params[n] for key, n in operands.items() if n in self.grids.params}
        pointing = {key: n for key, n in operands.items() if spec.inputs[key].kind == "index"}
        # an index is its own code, of scale 1
        given |= {key: own_codes(self.grids.graph.tensor(n).dtype) for key, n in pointing.items()}
        given = {key: self._with_steps(params) for key, params in given.items()}
        inputs = {key: params for key, params in given.items() if key in spec.activations}
        output = self._output(node, spec)
        if output is None:
            raise UnsupportedError(f"its result {node.outputs[0]!r} is not quantized")
        if output.axis is not None:
            raise UnsupportedError(f"its result {node.outputs[0]!r} has several scales")
        output = self._with_steps(output)
        for key, held in operands.items():
            # a float bias is quantized by the platform's rule
            if spec.inputs[key].role != "bias" and key not in given:
                raise UnsupportedError(f"its operand {held!r} is not quantized")
            if key in inputs and inputs[key].axis is not None:
                raise UnsupportedError(f"{held!r} is an activation with several scales, must have one")
        for key, params in given.items():
            if _is_across(spec.inputs[key], params, tensors[operands[key]]):
                raise UnsupportedError(f"{operands[key]!r} has scales along another axis than the result's channels")
        return self._provided(node, spec, operands, given, inputs, output, tensors)

    def _output(self, node: Node, spec: Spec) -> QParams | None:
        """Return the parameters of the result; for an index, those of an integer."""
        if next(iter(spec.quantization.outputs.values()), "") == "index":
            dtype = self.grids.graph.tensor(node.outputs[0]).dtype
            return QParams(dtype, torch.ones((), dtype=torch.float64), torch.tensor(0), dtype.min, dtype.max)
        return self.grids.params.get(node.outputs[0])

    def _with_steps(self, params: QParams) -> QParams:
        """Add `steps` (float32 1 / scale) to parameters on platforms whose arithmetic multiplies by it."""
        if self.platform.parameters.scale != "float32_steps" or params.steps is not None:
            return params
        return replace(params, steps=(1.0 / params.scale).float())

    def _provided(
        self,
        node: Node,
        spec: Spec,
        operands: Mapping[str, str],
        given: Mapping[str, QParams],
        inputs: Mapping[str, QParams],
        output: QParams,
        tensors: dict[str, Tensor],
    ) -> Node:
        """Return *node* with the parameters of the platform's rule; *tensors* gets the codes of its biases.

        UnsupportedError if the rule gives other parameters than the file has.
        """
        source = self.grids.graph
        constants = {
            # codes of the file: the rule must not quantize weights anew
            key: Constant(cast("torch.Tensor", tensors[name].data).long(), given[key])
            for key, name in operands.items()
            if key in given and key not in spec.activations and tensors[name].data is not None
        }
        weights = usable_constants(spec, operands, constants, inputs)
        floats = self._float_constants(spec, operands)
        shapes = {key: tuple(source.tensor(name).shape) for key, name in operands.items()}
        attrs = cast("Mapping[str, AttrValue]", node.attrs)
        platform = self.platform if node.extra.get(ON_CODES) else self.platform.in_graphs
        scheme = declared_scheme(_as_provided(node, source, inputs, output, weights), platform)
        plain = Request(spec, scheme, platform, shapes, attrs, _ranges(inputs, output), floats, inputs)
        # *plain* asks what the rule would choose; *request* fixes what the file has
        request = ProvidedRequest(
            spec, scheme, platform, shapes, attrs, {}, floats, inputs, output_params=output, weights=weights
        )
        if (refusal := other_parameters(plain, output, node.outputs[0])) is not None:
            raise UnsupportedError(refusal)
        provided = BuiltinEngine().quantize(request)
        self._check_answer(provided, inputs, output, node)
        check_declared(replace(node, parameters=provided), source)
        # the constants that the rule quantized itself: float biases
        made = {key: constant for key, constant in provided.constants.items() if key not in weights}
        for key, constant in made.items():
            if spec.inputs[key].role == "bias" and saturates(constant, floats[key]):
                raise UnsupportedError(
                    f"{operands[key]!r} is a bias that does not fit {constant.params.dtype} at its sums' scale"
                )
        tensors.update({operands[key]: _constant(operands[key], c) for key, c in made.items() if key in operands})
        return replace(node, parameters=provided)

    def _float_constants(self, spec: Spec, operands: Mapping[str, str]) -> dict[str, torch.Tensor]:
        """Return the real values of weights and biases; UnsupportedError if the graph computes one."""
        found = {}
        for key, name in operands.items():
            if key not in spec.activations:
                data = self.grids.graph.tensor(name).data
                if data is None:
                    raise UnsupportedError(f"its operand {name!r} is computed, must be a constant")
                found[key] = data
        return found

    def _check_answer(self, provided: Parameters, inputs: Mapping[str, QParams], output: QParams, node: Node) -> None:
        """Raise UnsupportedError if the platform's rule answers with other parameters than the file's."""
        spec, name = specs()[node.op], self.platform.platform
        if not all(
            same_numbers(params, provided.inputs[key]) for key, params in inputs.items() if key in provided.inputs
        ):
            raise UnsupportedError(f"platform {name!r} changes the parameters of its operands")
        if not same_numbers(next(iter(provided.outputs.values())), output):
            raise UnsupportedError(
                refusal_of_fixed(name, node.outputs[0], next(iter(provided.outputs.values())), output)
            )
        # an unscaled sum of equal scales keeps their scale, whatever output scale the file has
        alike = len(inputs) > 1 and all(same_numbers(next(iter(inputs.values())), params) for params in inputs.values())
        unscaled = spec.quantization.family in self.platform.multiplier.unscaled
        if unscaled and alike and provided.rescale is not None and provided.rescale.variant == "multiplier_shift":
            first = next(iter(inputs.values()))
            if not torch.equal(first.scale, output.scale):
                raise UnsupportedError(
                    f"platform {name!r} rescales no result of {spec.op} whose operands have one scale: "
                    f"{node.outputs[0]!r} has another"
                )


def _values(given: torch.Tensor, params: QParams | None) -> torch.Tensor:
    """Return real numbers: *given*, dequantized if it holds integer codes and the tensor has parameters."""
    return given if params is None or given.is_floating_point() else dequantize(given.long(), params).float()


def check_declared(node: Node, graph: Graph) -> Scheme:
    """Return the scheme of the node's platform that fits the node's parameters.

    Raises UnsupportedError if no declared scheme fits, or if a sum of the node may leave the accumulator. It names the
    tensor, its value and what the platform declares.
    """
    provided, spec = node.parameters, specs()[node.op]
    assert isinstance(provided, Parameters)
    output = next(iter(provided.outputs.values()))
    known = _as_provided(node, graph, provided.inputs, output, provided.constants)
    scheme = declared_scheme(known, provided.platform)
    # weights tell how many products a sum has; two computed operands need the spec's formula
    count, terms = 1, spec.error_model.terms
    if terms is not None and not known.weights:
        named = zip(spec.inputs, node.inputs, strict=False)
        shapes = {key: tuple(graph.tensor(name).shape) for key, name in named if name is not None}
        count = int(terms(variables(spec, shapes, cast("Mapping[str, AttrValue]", node.attrs))))
    check_accumulator(known, provided.platform, provided.accumulator_bits, count)
    return scheme


def _as_provided(
    node: Node, graph: Graph, inputs: Mapping[str, QParams], output: QParams, constants: Mapping[str, Constant]
) -> Provided:
    """Return the parameters that a platform has to declare. An index has no parameters."""
    spec = specs()[node.op]
    named = {key: name for key, name in zip(spec.inputs, node.inputs, strict=False) if name is not None}
    index = next(iter(spec.quantization.outputs.values()), "") == "index"
    return Provided(
        spec,
        named | {next(iter(spec.outputs)): node.outputs[0]},
        {key: params for key, params in inputs.items() if spec.inputs[key].kind == "value"},
        None if index else output,
        {key: constant for key, constant in constants.items() if key in spec.inputs},
        frozenset(key for key, name in named.items() if key in inputs and graph.tensor(name).is_constant),
    )


def _constant(name: str, constant: Constant) -> Tensor:
    data = constant.codes.to(container(constant.params.dtype)).contiguous()
    return Tensor(name, tuple(data.shape), constant.params.dtype, data, constant.params)


def _is_across(item: Input, params: QParams, tensor: Tensor) -> bool:
    """Return whether a weight has several scales along another axis than the result's channels."""
    if item.role != "weight" or params.axis is None:
        return False
    rank = len(tensor.shape)
    return item.channel_axis is None or params.axis % rank != item.channel_axis % rank


def _ranges(inputs: Mapping[str, QParams], output: QParams) -> dict[str, tuple[float, float]]:
    return {key: span(params) for key, params in {**inputs, "y": output}.items()}


def span(params: QParams) -> tuple[float, float]:
    """Return the smallest and the largest value that codes of one scale have."""
    ends = torch.tensor([params.qmin, params.qmax])
    low, high = dequantize(ends, replace(params, axis=None)).tolist()
    return low, high
