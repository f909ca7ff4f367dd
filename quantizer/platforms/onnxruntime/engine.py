"""ONNX Runtime: a case as a model of one quantized node, as its own quantizer writes it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import onnx
import torch
from onnx import helper, numpy_helper
from torch import Tensor

from quantizer.core.case import AttrValue
from quantizer.core.errors import RefusedError
from quantizer.core.platforms import Platform
from quantizer.core.schemes import Scheme
from quantizer.core.spec import Spec
from quantizer.numerics.qparams import Parameters, QParams
from quantizer.numerics.quantize import quantize
from quantizer.runtime.engines.forms import onnx_nodes
from quantizer.runtime.engines.forms.onnx_nodes import attribute_inputs, refuse_inexpressible, refuse_pairs
from quantizer.runtime.engines.frames import Array, Job
from quantizer.runtime.engines.lowering import Lowered
from quantizer.runtime.engines.protocol import Call

CHECKS = ("float", "arithmetic", "accuracy", "exact", "tiled", "properties", "repeat", "engine")
MICROSOFT = "com.microsoft"
NODES = {
    "conv1d": ("QLinearConv", "Conv"),
    "conv2d": ("QLinearConv", "Conv"),
    "conv3d": ("QLinearConv", "Conv"),
    "depthwise_conv2d": ("QLinearConv", "Conv"),
    "fully_connected": ("QGemm", "Gemm"),
    "matmul": ("QLinearMatMul", "MatMul"),
    "add": ("QLinearAdd", "Add"),
    "mul": ("QLinearMul", "Mul"),
    "softmax": ("QLinearSoftmax", "Softmax"),
    "sigmoid": ("QLinearSigmoid", "Sigmoid"),
    "leaky_relu": ("QLinearLeakyRelu", "LeakyRelu"),
    "avg_pool2d": ("QLinearAveragePool", "AveragePool"),
    "global_avg_pool2d": ("QLinearGlobalAveragePool", "GlobalAveragePool"),
    "concat": ("QLinearConcat", "Concat"),
    "max_pool2d": ("MaxPool", "MaxPool"),
    "transpose": ("Transpose", "Transpose"),
    "pad": ("Pad", "Pad"),
    "reshape": ("Reshape", "Reshape"),
    "argmax": ("ArgMax", "ArgMax"),
    "gather": ("Gather", "Gather"),
    "quantize": ("QuantizeLinear", "Identity"),
    "gather_elements": ("GatherElements", "GatherElements"),
    "where": ("QLinearWhere", "Where"),
}
"""Operator -> (its quantized node, its float node)."""
STANDARD = ("QLinearConv", "QLinearMatMul", "QuantizeLinear")
"""Quantized nodes of the standard; all others are in Microsoft's domain."""
MOVES = ("max_pool2d", "transpose", "pad", "reshape", "argmax", "gather", "gather_elements")
"""Operators whose node works directly on codes. All other quantized nodes take scales and zero points."""
CODES: Mapping[str, type[np.generic]] = {"value": np.uint8, "index": np.int32, "real": np.float32}
REALS: Mapping[str, type[np.generic]] = {"value": np.float32, "index": np.int32, "real": np.float32}
"""Kind of an input -> the type in which it is fed: for codes, and for real values."""
CONDITIONS = ("where",)
"""Operators whose indices are conditions, the node's first operand."""
POOLS = ("avg_pool2d", "global_avg_pool2d")
CONVOLUTIONS = ("conv1d", "conv2d", "conv3d", "depthwise_conv2d")
OPSETS = [helper.make_opsetid("", 13), helper.make_opsetid(MICROSOFT, 1)]
IR_VERSION = 8


def supports(spec: Spec, scheme: Scheme, platform: Platform, variant: str) -> str | None:
    """Return why ONNX Runtime has no node for the operator, or None."""
    return None if spec.op in NODES else f"onnxruntime has no quantized kernel for {spec.op}"


def lower(call: Call, codes: Mapping[str, Tensor], parameters: Parameters, variant: str) -> Lowered:
    """Return the model of the quantized node. Pools have the axis order of the case."""
    op = call.spec.op
    if call.activation != "none":
        raise RefusedError(f"no QLinear node fuses {call.activation}")
    feeds = _typed(_fed(call, codes, CODES), parameters)
    refuse_pairs(call.attrs)
    _refuse_global(call, parameters, feeds)
    constants, order = quantized_inputs(call, codes, parameters)
    attrs = node_attributes(op, call.attrs, _channels(codes), quantized=True)
    # only the QLinear pools have an attribute for channels last
    if op not in POOLS or call.order == "channels_first":
        return Lowered(Job(_model([(NODES[op][0], order, attrs)], feeds, constants), feeds))
    feeds = {"x": np.moveaxis(feeds["x"], 1, -1)}
    model = _model([(NODES[op][0], order, {**attrs, "channels_last": 1})], feeds, constants)
    return Lowered(Job(model, feeds), lambda outputs: np.moveaxis(outputs[0], -1, 1))


def lower_float(call: Call, operands: Mapping[str, Tensor], variant: str) -> Lowered:
    """Return the model of the float32 node. The node of averages counts no elements beyond the padding."""
    op, feeds = call.spec.op, _fed(call, operands, REALS)
    refuse_inexpressible(call.spec, call.attrs, {name: values.shape for name, values in feeds.items()})
    constants = attribute_inputs(op, call.attrs)
    attrs = node_attributes(op, call.attrs, _channels(operands), quantized=False)
    return Lowered(Job(_model([(NODES[op][1], [*feeds, *constants], attrs)], feeds, constants), feeds))


def _fed(call: Call, operands: Mapping[str, Tensor], types: Mapping[str, type[np.generic]]) -> dict[str, Array]:
    """Return the feeds: activations, and constants that are real values. A condition is bool and comes first."""
    items = {n: call.spec.inputs[n] for n in operands if types is REALS or n in call.spec.activations}
    kinds = {name: types[item.kind] for name, item in items.items()}
    if call.spec.op in CONDITIONS:
        conditions = [name for name, item in items.items() if item.kind == "index"]
        kinds = dict.fromkeys(conditions, np.bool_) | {name: kinds[name] for name in kinds if name not in conditions}
    return {name: operands[name].numpy().astype(kind) for name, kind in kinds.items()}


def _typed(feeds: Mapping[str, Array], parameters: Parameters) -> dict[str, Array]:
    """Return codes in the type of their grid. Cases have unsigned bytes; a model may have other types."""
    own = {name: _type(params) for name, params in parameters.inputs.items() if name in feeds}
    bytes_ = {
        name: values.astype(own.get(name, np.uint8)) for name, values in feeds.items() if values.dtype == np.uint8
    }
    return {**feeds, **bytes_}


def _type(params: QParams) -> type[np.integer[Any]]:
    return np.int8 if params.dtype.kind == "int" else np.uint8


def lower_sums(call: Call, codes: Mapping[str, Tensor], parameters: Parameters, variant: str) -> Lowered | None:
    """Return ConvInteger or MatMulInteger, then the bias: int32 sums of centred codes."""
    op = call.spec.op
    if op not in (*CONVOLUTIONS, "fully_connected", "matmul"):
        return None
    own = {name: _type(parameters.inputs[name]) for name in call.spec.activations if name in codes}
    feeds = {name: codes[name].numpy().astype(kind) for name, kind in own.items()}
    constants: dict[str, Array] = {
        f"{name}_zero": parameters.inputs[name].zero_point.numpy().astype(kind) for name, kind in own.items()
    }
    order = [*feeds, *constants]
    if "weight" in codes:
        weight = codes["weight"].numpy().astype(np.int8)
        # MatMulInteger multiplies [n, c] by [c, o]; the spec's weights are [o, c]
        constants |= {"weight": weight.T if op == "fully_connected" else weight, "weight_zero": np.zeros((), np.int8)}
        order = ["x", "weight", "x_zero", "weight_zero"]
    convolves = op in CONVOLUTIONS
    attrs = node_attributes(op, call.attrs, _channels(codes), quantized=True) if convolves else {}
    nodes = [("ConvInteger" if convolves else "MatMulInteger", order, attrs)]
    if "bias" in codes:
        # the channel is axis 1 of a convolution's result
        along = [-1, *[1] * (codes["x"].dim() - 2)] if convolves else [-1]
        constants["bias"] = codes["bias"].numpy().astype(np.int32).reshape(along)
        nodes.append(("Add", ["n0", "bias"], {}))
    return Lowered(Job(_model(nodes, feeds, constants), feeds))


def _model(
    nodes: Sequence[tuple[str, list[str], Mapping[str, Any]]],
    feeds: Mapping[str, Array],
    constants: Mapping[str, Array],
) -> bytes:
    """Return the model of a chain of nodes; each lists its inputs ("" is absent), and outputs are called n0, n1, ..."""
    made = [
        helper.make_node(op, order, [f"n{index}"], domain=_domain(op), **attrs)
        for index, (op, order, attrs) in enumerate(nodes)
    ]
    inputs = [
        helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(values.dtype), values.shape)
        for name, values in feeds.items()
    ]
    kept = [numpy_helper.from_array(np.array(values, order="C"), name) for name, values in constants.items()]
    graph = helper.make_graph(made, "g", inputs, [onnx.ValueInfoProto(name=f"n{len(nodes) - 1}")], kept)
    model: bytes = helper.make_model(graph, opset_imports=OPSETS, ir_version=IR_VERSION).SerializeToString()
    return model


def _domain(op: str) -> str:
    return MICROSOFT if op.startswith("Q") and op not in STANDARD else ""


def node_attributes(op: str, attrs: Mapping[str, AttrValue], channels: int, *, quantized: bool) -> dict[str, Any]:
    """Return the attributes of the node; *channels*: the number of groups if the spec has no attribute for it."""
    made = onnx_nodes.node_attributes(op, attrs, channels)
    return {**made, "opset": 13} if op == "softmax" and quantized else made


def quantized_inputs(
    call: Call, codes: Mapping[str, Tensor], parameters: Parameters
) -> tuple[dict[str, Array], list[str]]:
    """Return the initializers of the quantized node, and the names of all its inputs in the node's order."""
    op = call.spec.op
    if op in MOVES:
        made = attribute_inputs(op, call.attrs)
        if op == "pad":
            code = quantize(_as_tensor(made["value"]), parameters.inputs["x"], parameters.platform.quantizer)
            made["value"] = code.numpy().astype(_type(parameters.inputs["x"]))
        return made, [*(name for name in call.spec.activations if name in codes), *made]
    activations = [name for name in call.spec.activations if name in codes and call.spec.inputs[name].kind == "value"]
    pointing = [name for name in call.spec.activations if name in codes and name not in activations]
    constants = {name: values.numpy().astype(np.int8) for name, values in codes.items() if name == "weight"}
    inputs = {name: scale_and_zero(name, parameters.inputs[name]) for name in activations}
    inputs |= {name: scale_and_zero(name, parameters.constants[name].params) for name in constants}
    operands = [part for name, made in inputs.items() for part in (name, *made)]
    bias = {"bias": codes["bias"].numpy().astype(np.int32)} if "bias" in codes else {}
    y = scale_and_zero("y", parameters.outputs["y"])
    # QLinearConcat takes the output's parameters first, QGemm its bias before them; "" is an absent bias
    orders = {"concat": [*y, *operands], "fully_connected": [*operands, "bias" if bias else "", *y]}
    made = {name: values for part in inputs.values() for name, values in part.items()} | constants | y | bias
    return made, orders.get(op, [*pointing, *operands, *y, *bias])


def _as_tensor(values: Array) -> Tensor:
    return torch.from_numpy(values.reshape(()))


def scale_and_zero(name: str, params: QParams) -> dict[str, Array]:
    """Return the two initializers of a quantized tensor."""
    scale, zero = params.scale.numpy().astype(np.float32), params.zero_point.numpy().astype(_type(params))
    return {f"{name}_scale": scale, f"{name}_zero": zero}


def _refuse_global(call: Call, parameters: Parameters, feeds: Mapping[str, Array]) -> None:
    """Refuse a global average whose multiplier makes the kernel throw, also one window that is the whole image."""
    if call.spec.op not in POOLS or not _covers_image(call, feeds["x"].shape):
        return
    x, y = (np.float32(side.scale) for side in (parameters.inputs["x"], parameters.outputs["y"]))
    multiplier = x / (y * np.float32(np.prod(feeds["x"].shape[2:])))
    # the kernel throws for a multiplier outside of this range
    if not 2.0**-32 <= multiplier < 256:
        raise RefusedError("QLinearGlobalAveragePool takes multipliers from 2**-32 to 256")


def _covers_image(call: Call, shape: tuple[int, ...]) -> bool:
    attrs: Mapping[str, Any] = call.attrs
    return "kernel" not in attrs or (tuple(attrs["kernel"]) == shape[2:] and not any(attrs["padding"]))


def _channels(operands: Mapping[str, Tensor]) -> int:
    """Return the number of the input's channels, which is the number of groups of a depthwise convolution."""
    x = operands.get("x")
    return 1 if x is None or x.dim() < 2 else x.shape[1]
