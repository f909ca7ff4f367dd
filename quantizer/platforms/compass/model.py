"""The form `compass-ir`: a case as a quantized Compass IR of one layer, text and constants in a zip."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import cast

import numpy as np
import torch

from quantizer.core.dtypes import dtype
from quantizer.core.errors import FormatError, GraphError, RefusedError, UnsupportedError
from quantizer.core.expressions import Expression
from quantizer.core.platforms import Platform
from quantizer.core.schemes import Scheme
from quantizer.core.shapes import tensor_shapes, variables
from quantizer.core.spec import Spec
from quantizer.ir.formats import compass
from quantizer.ir.formats.compass_mapping import FORMAT
from quantizer.ir.formats.compass_quantized import filed
from quantizer.ir.formats.npz import zip_bytes
from quantizer.ir.graph import Graph, Node, Tensor, container
from quantizer.nn.compass_file import PLATFORM, compass_layers
from quantizer.numerics.qparams import Constant, Parameters
from quantizer.numerics.rules import bias_params
from quantizer.platforms.compass.names import BLOB, GRAPH
from quantizer.runtime.engines.frames import Array, Job
from quantizer.runtime.engines.lowering import Lowered
from quantizer.runtime.engines.protocol import Call
from quantizer.runtime.executor import to_node_order

CHECKS = ("arithmetic", "accuracy", "tiled", "properties", "repeat", "engine")
OUTPUT, BIAS_BITS = "y", 32


# the protocol's arguments
def supports(spec: Spec, scheme: Scheme, platform: Platform, variant: str) -> str | None:  # noqa: ARG001
    """Return None for an operator with a Compass layer and one output, on the platform whose numbers a layer holds."""
    if PLATFORM not in platform.places:
        return f"Compass IR holds the numbers of {PLATFORM}, not those of {platform.platform}"
    if FORMAT not in spec.formats or spec.outputs[OUTPUT].pieces is not None:
        return f"Compass IR has no layer of {spec.op} with one output"
    return None


def lower(call: Call, codes: Mapping[str, torch.Tensor], parameters: Parameters, variant: str) -> Lowered:  # noqa: ARG001
    """Return the layer, its inputs around it; what is fed lies channels last."""
    spec = call.spec
    try:
        text, blob = compass.to_bytes(compass_layers(_graph(call, *_with_bias(call, codes, parameters))))
    except (UnsupportedError, GraphError, FormatError) as err:
        raise RefusedError(f"Compass IR does not hold the case: {err}") from None
    # constants are in the layer's file; only activations are fed
    feeds = {name: _fed(spec, name, codes[name], parameters) for name in codes if name in _fed_names(spec, codes)}
    is_spatial = spec.outputs[OUTPUT].spatial
    return Lowered(Job(zip_bytes({GRAPH: text.encode(), BLOB: blob}), feeds), _channels_first if is_spatial else _first)


def lower_float(call: Call, operands: Mapping[str, torch.Tensor], variant: str) -> Lowered:  # noqa: ARG001
    """Refuse: a float layer is what the optimizer reads, not what a simulator runs."""
    raise RefusedError("only quantized layers are run")


def lower_sums(
    call: Call,  # noqa: ARG001
    codes: Mapping[str, torch.Tensor],  # noqa: ARG001
    parameters: Parameters,  # noqa: ARG001
    variant: str,  # noqa: ARG001
) -> Lowered | None:
    """Return None: a layer does not show its sums."""
    return None


def _fed_names(spec: Spec, codes: Mapping[str, torch.Tensor]) -> tuple[str, ...]:
    return tuple(name for name in codes if spec.inputs[name].role == "activation")


def _fed(spec: Spec, name: str, values: torch.Tensor, parameters: Parameters) -> Array:
    """Return the codes of an operand in the file's type and order of axes."""
    params = parameters.inputs.get(name)
    # an index has no parameters
    kind = torch.int32 if params is None else container(filed(params).dtype)
    arranged = to_node_order(values, compass.ORDER, spatial=spec.inputs[name].spatial)
    return np.ascontiguousarray(arranged.to(kind).numpy())


def _with_bias(
    call: Call, codes: Mapping[str, torch.Tensor], parameters: Parameters
) -> tuple[Mapping[str, torch.Tensor], Parameters]:
    """Return the case with zeros for an absent bias: a layer's biases also hold the input's zero point."""
    spec, weight = call.spec, parameters.constants.get("weight")
    name = next((name for name, item in spec.inputs.items() if item.role == "bias" and name not in codes), None)
    if name is None or weight is None or spec.inputs[name].axes is None:
        return codes, parameters
    sizes = variables(spec, {key: tuple(values.shape) for key, values in codes.items()}, call.attrs)
    (length,) = (int(cast("int", axis(sizes))) for axis in cast("list[Expression]", spec.inputs[name].axes))
    # the scale of the sums, to which the bias is added
    scale = weight.params.scale * next(iter(parameters.inputs.values())).scale
    zeros = torch.zeros(length, dtype=torch.int64)
    # groups of a transposed convolution share the scales of the weights
    params = bias_params(scale.repeat(length // len(scale)) if scale.dim() else scale, None, BIAS_BITS, 0)
    constants = {**parameters.constants, name: Constant(zeros, params)}
    return {**codes, name: zeros}, replace(parameters, constants=constants)


def _graph(call: Call, codes: Mapping[str, torch.Tensor], parameters: Parameters) -> Graph:
    """Return the case as a graph of one node with its parameters; constants are replaced by their codes later."""
    spec, fed = call.spec, _fed_names(call.spec, codes)
    tensors = {}
    for name, values in codes.items():
        item = spec.inputs[name]
        arranged = to_node_order(values, compass.ORDER, spatial=item.spatial).contiguous()
        kind = dtype("int32" if item.kind == "index" else "float32")
        data = None if name in fed else arranged.to(container(kind))
        tensors[name] = Tensor(name, tuple(arranged.shape), kind, data, parameters.inputs.get(name))
    shapes = {name: tuple(values.shape) for name, values in codes.items()}
    (shape,) = tensor_shapes(spec, shapes, call.attrs)
    # an empty tensor only to move the sizes; nothing reads its values
    made = to_node_order(torch.empty(shape), compass.ORDER, spatial=spec.outputs[OUTPUT].spatial)
    tensors[OUTPUT] = Tensor(OUTPUT, tuple(made.shape), dtype("float32"), None, parameters.outputs.get(OUTPUT))
    inputs = tuple(name if name in codes else None for name in spec.inputs)
    node = Node(
        spec.op,
        spec.op,
        inputs,
        (OUTPUT,),
        call.attrs,
        compass.ORDER,
        parameters=parameters,
        activation=call.activation,
    )
    return Graph(spec.op, (node,), tensors, fed, (OUTPUT,))


def _channels_first(outputs: tuple[Array, ...]) -> Array:
    return np.moveaxis(outputs[0], -1, 1)


def _first(outputs: tuple[Array, ...]) -> Array:
    return outputs[0]
