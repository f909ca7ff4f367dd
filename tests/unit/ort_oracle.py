"""ONNX Runtime as an engine of single operators; the tests of platform `ort` compare ours with it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import onnx
import onnxruntime
import torch
from numpy.typing import NDArray
from onnxruntime.quantization.quant_utils import quantize_nparray
from torch import Tensor

from quantizer.core.shapes import infer_shapes
from quantizer.numerics.qparams import Parameters, QParams, Staged
from quantizer.runtime.engines import Call
from quantizer.runtime.engines.own import OwnEngine

Array = NDArray[Any]
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
}
"""Operator -> its quantized node, its float node."""
MOVES = ("max_pool2d", "transpose", "pad", "reshape", "argmax")
"""Operators whose node works on codes as they are; every other quantized node takes scales and zero points."""
POOLS = ("avg_pool2d", "global_avg_pool2d")
STANDARD = ("QLinearConv", "QLinearMatMul")
"""Quantized nodes of the standard; every other one is Microsoft's."""
MICROSOFT = "com.microsoft"


def one_node(
    op: str, feeds: Mapping[str, Array], constants: Mapping[str, Array], order: list[str], **attrs: object
) -> onnx.ModelProto:
    """Return the model of one node; *order* names its inputs ("" is absent), *constants* are initializers."""
    helper = onnx.helper
    domain = MICROSOFT if op.startswith("Q") and op not in (*STANDARD, "QuantizeLinear") else ""
    inputs = [
        helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(values.dtype), values.shape)
        for name, values in feeds.items()
    ]
    graph = helper.make_graph(
        [helper.make_node(op, order, ["out"], domain=domain, **attrs)],
        "g",
        inputs,
        [onnx.ValueInfoProto(name="out")],
        [onnx.numpy_helper.from_array(np.array(values, order="C"), name) for name, values in constants.items()],
    )
    opsets = [helper.make_opsetid("", 13), helper.make_opsetid(MICROSOFT, 1)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=8)


def run_node(
    op: str, feeds: Mapping[str, Array], constants: Mapping[str, Array], order: list[str], **attrs: object
) -> Array:
    """Return what one node computes, on one thread that does not spin."""
    serialized = one_node(op, feeds, constants, order, **attrs).SerializeToString()
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads, options.log_severity_level = 1, 3
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    session = onnxruntime.InferenceSession(serialized, options, providers=["CPUExecutionProvider"])
    return np.asarray(session.run(None, dict(feeds))[0])


def node_attributes(op: str, attrs: Mapping[str, Any], *, groups: int = 1, quantized: bool) -> dict[str, object]:
    """Return the attributes of the node that is *op* with *attrs*; *groups* where *attrs* do not say."""
    names = {"pads": "padding", "strides": "stride", "dilations": "dilation", "kernel_shape": "kernel"}
    windows = {onnx_name: list(attrs[name]) for onnx_name, name in names.items() if name in attrs}
    match op:
        case "conv1d" | "conv2d" | "conv3d" | "depthwise_conv2d":
            return {"group": attrs.get("groups", groups), **windows}
        case "max_pool2d":
            return {"ceil_mode": int(attrs["ceil_mode"]), **windows}
        case "avg_pool2d":
            flags = {name: int(attrs[name]) for name in ("ceil_mode", "count_include_pad")}
            return {**flags, **windows}
        case "fully_connected":
            return {"transB": 1}
        case "softmax":
            return {"axis": attrs["axis"], **({"opset": 13} if quantized else {})}
        case "leaky_relu":
            return {"alpha": attrs["slope"]}
        case "concat":
            return {"axis": attrs["axis"]}
        case "transpose":
            return {"perm": list(attrs["perm"])}
        case "argmax":
            flags = {"keepdims": int(attrs["keepdims"]), "select_last_index": int(attrs["select_last"])}
            return {"axis": attrs["axis"], **flags}
        case _:
            return {}


def node_constants(op: str, attrs: Mapping[str, Any]) -> dict[str, Array]:
    """Return the inputs of the float node of *op* that are attributes of ours."""
    match op:
        case "reshape":
            return {"shape": np.array(attrs["shape"], np.int64)}
        case "pad":
            return {"pads": np.array(attrs["padding"], np.int64), "value": np.array(attrs["value"], np.float32)}
        case _:
            return {}


def scale_and_zero(name: str, params: QParams, kind: str = "uint8") -> dict[str, Array]:
    """Return the two initializers of a quantized tensor."""
    scale, zero = params.scale.numpy().astype(np.float32), params.zero_point.numpy().astype(kind)
    return {f"{name}_scale": scale, f"{name}_zero": zero}


def quantized_inputs(
    call: Call, codes: Mapping[str, Tensor], parameters: Parameters
) -> tuple[dict[str, Array], list[str]]:
    """Return the initializers of the quantized node, and the names of all its inputs in its order."""
    op, x = call.spec.op, next(iter(parameters.inputs.values()))
    if op in MOVES:
        made = node_constants(op, call.attrs)
        if op == "pad":
            scale, zero = (values.item() for values in scale_and_zero("x", x).values())
            made["value"] = quantize_nparray(onnx.TensorProto.UINT8, made["value"], np.float32(scale), np.uint8(zero))
        return made, ["x", *made]
    activations = [name for name in call.spec.activations if name in codes]
    constants = {name: values.numpy().astype(np.int8) for name, values in codes.items() if name == "weight"}
    inputs = {name: scale_and_zero(name, parameters.inputs[name]) for name in activations}
    inputs |= {name: scale_and_zero(name, parameters.constants[name].params, "int8") for name in constants}
    operands = [part for name, made in inputs.items() for part in (name, *made)]
    bias = {"bias": codes["bias"].numpy().astype(np.int32)} if "bias" in codes else {}
    y = scale_and_zero("y", parameters.outputs["y"])
    orders = {"concat": [*y, *operands], "fully_connected": [*operands, "bias" if bias else "", *y]}
    made = {name: values for part in inputs.values() for name, values in part.items()} | constants | y | bias
    return made, orders.get(op, [*operands, *y, *bias])


def refuses(call: Call, parameters: Parameters, shape: tuple[int, ...]) -> bool:
    """Return whether the global average of an input of *shape* is one that the kernel throws at."""
    if call.spec.op not in POOLS or not covers_image(call, shape):
        return False
    x, y = (np.float32(side.scale) for side in (parameters.inputs["x"], parameters.outputs["y"]))
    return not 2.0**-32 <= x / (y * np.float32(shape[2] * shape[3])) < 256


def covers_image(call: Call, shape: tuple[int, ...]) -> bool:
    """Return whether a pool has one window, the whole image: the kernel of average pools leaves it to the global one."""
    attrs: Mapping[str, Any] = call.attrs
    return "kernel" not in attrs or (tuple(attrs["kernel"]) == shape[2:] and not any(attrs["padding"]))


def overhangs(call: Call, shape: tuple[int, ...]) -> bool:
    """Return whether some window counts places beyond the padding, which the float node leaves out of its count."""
    attrs: Mapping[str, Any] = call.attrs
    if call.spec.op != "avg_pool2d" or not (attrs["ceil_mode"] and attrs["count_include_pad"]):
        return False
    padded = [size + sum(attrs["padding"][axis::2]) for axis, size in enumerate(shape[2:])]
    windows = infer_shapes(call.spec, {"x": shape}, attrs)["y"][2:]
    ends = [(n - 1) * s + k for n, s, k in zip(windows, attrs["stride"], attrs["kernel"], strict=True)]
    return any(end > size for end, size in zip(ends, padded, strict=True))


class OnnxRuntime(OwnEngine):
    """ONNX Runtime's kernels on what our quantize rule hands."""

    name = "onnxruntime"

    def run(self, call: Call, codes: Mapping[str, Tensor], parameters: Parameters) -> Staged:
        """Return the codes of the quantized node; its pools take the order of axes that the case asks for."""
        op = call.spec.op
        feeds = {n: codes[n].numpy().astype(np.uint8) for n in call.spec.activations if n in codes}
        constants, order = quantized_inputs(call, codes, parameters)
        attrs = node_attributes(op, call.attrs, groups=_channels(codes), quantized=True)
        last = op in POOLS and call.order == "channels_last"
        if last:
            attrs, feeds = {**attrs, "channels_last": 1}, {"x": np.ascontiguousarray(np.moveaxis(feeds["x"], 1, -1))}
        found = run_node(NODES[op][0], feeds, constants, order, **attrs)
        found = np.moveaxis(found, -1, 1) if last else found
        return Staged(torch.from_numpy(found.astype(np.int64)), {})

    def run_float(self, call: Call, operands: Mapping[str, Tensor]) -> Tensor:
        """Return the result of the float node."""
        op, feeds = call.spec.op, {name: values.numpy() for name, values in operands.items()}
        constants = node_constants(op, call.attrs)
        attrs = node_attributes(op, call.attrs, groups=_channels(operands), quantized=False)
        return torch.from_numpy(run_node(NODES[op][1], feeds, constants, [*feeds, *constants], **attrs))


def _channels(operands: Mapping[str, Tensor]) -> int:
    """Return the channels of the input: a group each, where the operator is a depthwise convolution."""
    x = operands.get("x")
    return 1 if x is None or x.dim() < 2 else x.shape[1]
