"""Quantized ONNX graphs on integers: each operator that a platform has runs by that platform's integer function.

Between quantizations an ONNX model computes in float. Here the parameters of every tensor are read off the quantizations,
and an operator of the registry whose operands and result have parameters gets what the platform hands for them. What the
platform has no integer function for stays float, on the values of codes, and its result is quantized.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import cast

import torch

from quantizer.core.case import AttrValue
from quantizer.core.errors import ConstraintError, GraphError, UnsupportedError
from quantizer.core.library import load_library
from quantizer.core.platforms import Platform
from quantizer.core.schemes import ActivationPart, Scheme, WeightPart
from quantizer.core.spec import Input, Spec
from quantizer.ir.graph import Graph, Node, Tensor, container, nearest
from quantizer.ir.verify import verify
from quantizer.numerics.handed_request import HandedRequest
from quantizer.numerics.parameters import Request
from quantizer.numerics.qparams import Constant, QParams
from quantizer.numerics.quantize import dequantize, quantize
from quantizer.numerics.rules import own_codes, same_numbers
from quantizer.ops import REGISTRY
from quantizer.runtime.engines.own import OwnEngine
from quantizer.runtime.grids import EXACT, Grids, spread
from quantizer.runtime.hooks import is_quantable
from quantizer.runtime.onnx.kernels import specs
from quantizer.runtime.onnx.registry_form import form_and_origins
from quantizer.runtime.onnx.unfolded import unfolded
from quantizer.runtime.qdq import with_qdq

CODES, VALUES = "integer.codes", "integer.values"
"""Graph.extra: tensors of the model -> the tensor of the integer graph that holds their codes, or values."""


def integer_graph(graph: Graph, platform: str = "ort", inputs: Mapping[str, torch.Tensor] | None = None) -> Graph:
    """Return a quantized graph as codes: of `quantize_graph`, or of a file with QDQ or QLinear operators.

    Every tensor with parameters holds codes; nodes that the platform computes on codes have its `Parameters`. Shapes are those
    that *inputs* have, where sizes are free. Run it with `runtime.integer_executor.IntegerExecutor`.

    Raises ValueError for an unknown platform, UnsupportedError for operators without specs, GraphError where nothing would
    be computed on integers.
    """
    known = load_library().platforms
    if platform not in known:
        raise ValueError(f"platform {platform!r}: no such platform.{nearest(platform, known)}")
    if any(is_quantable(node) for node in graph.nodes):
        graph = with_qdq(graph)
    floats = unfolded(graph)
    if not floats.params:
        raise GraphError(
            f"graph {graph.name!r}: no tensor is quantized: use quantize_graph, or a QDQ or QLinear model."
        )
    form, origins = form_and_origins(floats.graph, inputs)
    grids = spread(form, floats.params, floats.values, origins)
    work = _Work(grids, known[platform], floats.constants)
    made = work.graph()
    if not any(node.parameters is not None for node in made.nodes):
        raise GraphError(
            f"graph {graph.name!r}: platform {platform!r} has no integer function for any of its operators."
        )
    values = {name: grids.renamed(found) for name, found in floats.values.items()}
    codes = {name: grids.renamed(found) for name, found in floats.codes.items()}
    return made.with_(
        outputs=tuple(grids.renamed(name) for name in made.outputs), extra={**made.extra, CODES: codes, VALUES: values}
    )


@dataclass
class _Work:
    """The graph of codes under construction."""

    grids: Grids
    platform: Platform
    constants: Mapping[str, torch.Tensor]
    """Codes that the file has."""

    def graph(self) -> Graph:
        source = self.grids.graph
        tensors = {name: self._coded(tensor) for name, tensor in source.tensors.items()}
        nodes: list[Node] = []
        for node in source.order:
            ready = self._integer(node, tensors)
            nodes.append(node if ready is None else ready)
        found = source.with_(nodes=tuple(nodes), tensors=tensors)
        verify(found)
        return found

    def _coded(self, tensor: Tensor) -> Tensor:
        params = self.grids.params.get(tensor.name)
        if params is None:
            return tensor
        data = self.constants.get(tensor.name)
        if data is None and tensor.data is not None:
            data = self._codes(tensor.data, params).to(container(params.dtype))
        return replace(tensor, dtype=params.dtype, data=data, qparams=params)

    def _codes(self, values: torch.Tensor, params: QParams) -> torch.Tensor:
        return quantize(values.double(), params, EXACT)

    def _integer(self, node: Node, tensors: dict[str, Tensor]) -> Node | None:
        """Return the node with what the platform hands, None where it stays float."""
        spec, name = specs()[node.op], self.platform.platform
        named = self.platform.named is not None and self.platform.named in spec.names
        if not named and self.platform.ops is not None and node.op not in self.platform.ops:
            return None
        if REGISTRY.find(node.op, "quantized", name) is None or len(spec.outputs) != 1:
            return None
        operands = {key: n for key, n in zip(spec.inputs, node.inputs, strict=True) if n is not None}
        given = {key: self.grids.params[n] for key, n in operands.items() if n in self.grids.params}
        pointing = {key: n for key, n in operands.items() if spec.inputs[key].kind == "index"}
        given |= {key: own_codes(self.grids.graph.tensor(n).dtype) for key, n in pointing.items()}
        inputs = {key: params for key, params in given.items() if key in spec.activations}
        output = self._output(node, spec)
        asked = [key for key in operands if spec.inputs[key].role != "bias"]
        if output is None or any(key not in given for key in asked) or any(p.axis is not None for p in inputs.values()):
            return None
        if any(_is_across(spec.inputs[key], params, tensors[operands[key]]) for key, params in given.items()):
            return None
        return self._handed(node, spec, operands, given, inputs, output, tensors)

    def _output(self, node: Node, spec: Spec) -> QParams | None:
        """Return the parameters of the result; of an index those of any integer."""
        if next(iter(spec.quantization.outputs.values()), "") == "index":
            dtype = self.grids.graph.tensor(node.outputs[0]).dtype
            return QParams(dtype, torch.ones((), dtype=torch.float64), torch.tensor(0), dtype.min, dtype.max)
        return self.grids.params.get(node.outputs[0])

    def _handed(
        self, node: Node, spec: Spec, operands: Mapping[str, str], given: Mapping[str, QParams],
        inputs: Mapping[str, QParams], output: QParams, tensors: dict[str, Tensor],
    ) -> Node | None:  # fmt: skip
        source = self.grids.graph
        weights = {
            key: Constant(cast("torch.Tensor", tensors[name].data).long(), given[key])
            for key, name in operands.items() if key in given and key not in spec.activations
            and tensors[name].data is not None
        }  # fmt: skip
        weights = {
            key: c for key, c in weights.items() if spec.inputs[key].role == "weight" or _is_sum(c, inputs, weights)
        }
        floats = {
            key: cast("torch.Tensor", source.tensor(name).data)
            for key, name in operands.items() if key not in spec.activations
        }  # fmt: skip
        if any(data is None for data in floats.values()):
            return None
        shapes = {key: tuple(source.tensor(name).shape) for key, name in operands.items()}
        attrs = cast("Mapping[str, AttrValue]", node.attrs)
        scheme = scheme_of(output, next(iter(weights.values()), None))
        plain = Request(spec, scheme, self.platform, shapes, attrs, _ranges(inputs, output), floats, inputs)
        request = HandedRequest(
            spec, scheme, self.platform, shapes, attrs, {}, floats, inputs, output_params=output, weights=weights
        )
        try:
            if not _allowed(plain, output):
                return None
            handed = OwnEngine().quantize(request)
        except (GraphError, ConstraintError, UnsupportedError):
            return None
        for key, constant in handed.constants.items():
            name = operands.get(key)
            if name is not None and key not in weights:
                tensors[name] = _constant(name, constant)
        return replace(node, parameters=handed)


def _constant(name: str, constant: Constant) -> Tensor:
    data = constant.codes.to(container(constant.params.dtype)).contiguous()
    return Tensor(name, tuple(data.shape), constant.params.dtype, data, constant.params)


def _is_across(item: Input, params: QParams, tensor: Tensor) -> bool:
    """Return whether a weight has several scales, and not along the channels of the result: sums have no one scale then."""
    if item.role != "weight" or params.axis is None:
        return False
    rank = len(tensor.shape)
    return item.channel_axis is None or params.axis % rank != item.channel_axis % rank


def _is_sum(bias: Constant, inputs: Mapping[str, QParams], constants: Mapping[str, Constant]) -> bool:
    """Return whether a bias has the scale of the sums that it is added to, as float32 has it."""
    count = bias.codes.numel()
    factors = [*inputs.values(), *(c.params.repeated(count) for c in constants.values() if c is not bias)]
    scale = factors[0].scale
    for other in factors[1:]:
        scale = scale * other.scale
    return bool((scale.float() == bias.params.scale.float()).all()) and not bool(bias.params.zero_point.any())


def scheme_of(output: QParams, weight: Constant | None) -> Scheme:
    """Return the scheme that names what the file has: bits, and scales for the tensor or for channels."""
    part = None
    if weight is not None:
        grain = "channel" if weight.params.axis is not None else "tensor"
        part = WeightPart(bits=min(max(weight.params.dtype.bits, 2), 16), granularity=grain, range="full")  # type: ignore[arg-type]
    bits = min(max(output.dtype.bits, 2), 16)
    return Scheme(name="handed", activation=ActivationPart(bits=bits, lut_bits=bits), weight=part)


def _ranges(inputs: Mapping[str, QParams], output: QParams) -> dict[str, tuple[float, float]]:
    return {key: span(params) for key, params in {**inputs, "y": output}.items()}


def span(params: QParams) -> tuple[float, float]:
    """Return the smallest and the largest value that codes of one scale have."""
    ends = torch.tensor([params.qmin, params.qmax])
    low, high = dequantize(ends, replace(params, axis=None)).tolist()
    return low, high


def _allowed(request: Request, output: QParams) -> bool:
    """Return whether the platform's rule leaves the result's parameters open, or has the very same."""
    rule = request.spec.quantization.outputs.get("y", "calibrated")
    family, op, platform = request.spec.quantization.family, request.spec.op, request.platform
    fixed = (
        rule not in ("calibrated", "index") or family in platform.same_as_input or family in platform.negated
        or op in platform.fixed_outputs
    )  # fmt: skip
    if family in platform.shared_parameters and len({id(p) for p in request.given.values()}) > 1:
        first, *rest = request.given.values()
        if not all(same_numbers(first, other) for other in rest):
            return False
    return not fixed or same_numbers(request.output(), output)
