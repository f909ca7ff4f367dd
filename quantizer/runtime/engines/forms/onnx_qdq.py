"""The form `onnx-qdq`: codes, DequantizeLinear, ONNX's float operator, fused activation, QuantizeLinear, codes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import onnx
from onnx import helper, numpy_helper
from torch import Tensor

from quantizer.core.errors import RefusedError
from quantizer.core.platforms import Platform
from quantizer.core.schemes import Scheme
from quantizer.core.shapes import infer_shapes
from quantizer.core.spec import Spec
from quantizer.numerics.qparams import Parameters, QParams
from quantizer.runtime.engines.forms.onnx_nodes import attribute_inputs, node_attributes, refuse_inexpressible
from quantizer.runtime.engines.frames import Array, Job
from quantizer.runtime.engines.lowering import Lowered
from quantizer.runtime.engines.protocol import Call

CHECKS = ("float", "arithmetic", "accuracy", "tiled", "properties", "repeat", "engine")
NODES: Mapping[str, str] = {
    "abs": "Abs",
    "add": "Add",
    "argmax": "ArgMax",
    "argmin": "ArgMin",
    "atan": "Atan",
    "avg_pool2d": "AveragePool",
    "celu": "Celu",
    "clip": "Clip",
    "concat": "Concat",
    "conv1d": "Conv",
    "conv2d": "Conv",
    "conv3d": "Conv",
    "conv_transpose2d": "ConvTranspose",
    "depth_to_space": "DepthToSpace",
    "depthwise_conv2d": "Conv",
    "div": "Div",
    "elu": "Elu",
    "erf": "Erf",
    "exp": "Exp",
    "fully_connected": "Gemm",
    "gather": "Gather",
    "gather_elements": "GatherElements",
    "gelu": "Gelu",
    "global_avg_pool2d": "GlobalAveragePool",
    "global_max_pool2d": "GlobalMaxPool",
    "hard_swish": "HardSwish",
    "leaky_relu": "LeakyRelu",
    "log_softmax": "LogSoftmax",
    "matmul": "MatMul",
    "max_pool2d": "MaxPool",
    "maximum": "Max",
    "minimum": "Min",
    "mish": "Mish",
    "mul": "Mul",
    "negative": "Neg",
    "pad": "Pad",
    "quantize": "Identity",
    "reduce_max": "ReduceMax",
    "reduce_mean": "ReduceMean",
    "reduce_min": "ReduceMin",
    "reduce_sum": "ReduceSum",
    "relu": "Relu",
    "reshape": "Reshape",
    "selu": "Selu",
    "sigmoid": "Sigmoid",
    "slice": "Slice",
    "softmax": "Softmax",
    "softplus": "Softplus",
    "softsign": "Softsign",
    "sqrt": "Sqrt",
    "squeeze": "Squeeze",
    "sub": "Sub",
    "tanh": "Tanh",
    "thresholded_relu": "ThresholdedRelu",
    "transpose": "Transpose",
    "where": "Where",
}
"""Operator -> its float node."""
OPSETS = {"hard_swish": 14, "mish": 18, "gelu": 20}
"""Operator -> its first opset, if that is later than the usual one."""
OPSET, WIDE = 13, 21
"""The opsets of models with 8-bit codes, and of models with wider ones."""
IR_VERSION, WIDE_IR = 8, 10
CODES = ("int8", "uint8", "int16", "uint16")
BIAS = "int32"
Nodes = list[onnx.NodeProto]


# the protocol's arguments
def supports(spec: Spec, scheme: Scheme, platform: Platform, variant: str) -> str | None:
    """Return None for an operator that has a float node."""
    return None if spec.op in NODES else f"the form onnx-qdq has no {spec.op}"


def lower(call: Call, codes: Mapping[str, Tensor], parameters: Parameters, variant: str) -> Lowered:
    """Return the model of the operator between its dequantized operands and its quantized result."""
    spec, output = call.spec, parameters.outputs.get("y")
    made = _Model(OPSETS.get(spec.op, OPSET))
    inputs = []
    for name, values in codes.items():
        item = spec.inputs[name]
        if item.kind == "value":
            constant = parameters.constants.get(name)
            params = parameters.inputs[name] if constant is None else constant.params
            inputs.append(made.dequantized(name, values.numpy(), params, constant=constant is not None))
        elif item.kind == "real":
            inputs.append(made.feed(name, values.numpy().astype(np.float32)))
        else:
            inputs.append(made.feed(name, _index(spec, values.numpy())))
    result = _computed(made, call, codes, inputs)
    if spec.outputs["y"].kind == "index" or output is None:
        kind = "int64"
    else:
        result, kind = made.quantized(result, output), _format(output)
    shape = infer_shapes(spec, {name: tuple(values.shape) for name, values in codes.items()}, call.attrs)["y"]
    return made.lowered(result, kind, shape)


def lower_float(call: Call, operands: Mapping[str, Tensor], variant: str) -> Lowered:
    """Return the model of the operator without quantizations, on float32; constants are part of it."""
    spec = call.spec
    made = _Model(OPSETS.get(spec.op, OPSET))
    inputs = []
    for name, values in operands.items():
        if spec.inputs[name].kind == "index":
            inputs.append(made.feed(name, _index(spec, values.numpy())))
        elif spec.inputs[name].role == "activation":
            inputs.append(made.feed(name, values.numpy().astype(np.float32)))
        else:
            inputs.append(made.constant(name, values.numpy().astype(np.float32)))
    result = _computed(made, call, operands, inputs)
    kind = "int64" if spec.outputs["y"].kind == "index" else "float32"
    shape = infer_shapes(spec, {name: tuple(values.shape) for name, values in operands.items()}, call.attrs)["y"]
    return made.lowered(result, kind, shape)


def lower_sums(
    call: Call,
    codes: Mapping[str, Tensor],
    parameters: Parameters,
    variant: str,
) -> Lowered | None:
    """Return None: a float operator shows no sums."""
    return None


def _computed(made: _Model, call: Call, operands: Mapping[str, Tensor], inputs: list[str]) -> str:
    """Add the operator and its fused activation to *made*; return the name of the result."""
    op, attrs = call.spec.op, call.attrs
    refuse_inexpressible(call.spec, attrs, {name: tuple(values.shape) for name, values in operands.items()})
    if op == "where":  # the condition comes first
        inputs = [inputs[-1], *inputs[:-1]]
    if op == "conv_transpose2d":
        # ONNX's transposed convolution has the input channels first
        inputs = [inputs[0], made.node("Transpose", [inputs[1]], {"perm": [1, 0, 2, 3]}), *inputs[2:]]
    inputs += [made.constant(name, values) for name, values in attribute_inputs(op, attrs).items()]
    x = operands.get("x")
    channels = 1 if x is None or x.dim() < 2 else x.shape[1]
    result = made.node(NODES[op], inputs, node_attributes(op, attrs, channels))
    match call.activation:
        case "none":
            return result
        case "relu":
            return made.node("Relu", [result], {})
        case "relu6":
            ends = [made.constant(name, np.array(end, np.float32)) for name, end in (("zero", 0.0), ("six", 6.0))]
            return made.node("Clip", [result, *ends], {})
    raise RefusedError(f"the form onnx-qdq fuses no {call.activation}")


def _index(spec: Spec, values: Array) -> Array:
    """Return indices as ONNX takes them: conditions are bools."""
    return values.astype(np.bool_ if spec.op == "where" else np.int64)


def _format(params: QParams) -> str:
    """Return the type of codes; RefusedError for types that QuantizeLinear lacks or saturates at other limits."""
    kind = params.dtype.name
    if kind not in CODES:
        raise RefusedError(f"the form onnx-qdq has no codes of format {kind}")
    ends = np.iinfo(kind)
    if (params.qmin, params.qmax) != (ends.min, ends.max):
        raise RefusedError(f"QuantizeLinear saturates {kind} at its own ends, not at [{params.qmin}, {params.qmax}]")
    return kind


class _Model:
    """A model under construction."""

    def __init__(self, opset: int) -> None:
        self._opset = opset
        self._nodes: Nodes = []
        self._constants: dict[str, Array] = {}
        self._feeds: dict[str, Array] = {}

    def feed(self, name: str, values: Array) -> str:
        """Add an input of the model."""
        self._feeds[name] = values
        return name

    def constant(self, name: str, values: Array) -> str:
        """Add an initializer."""
        self._constants[name] = values
        return name

    def node(self, op: str, inputs: Sequence[str], attrs: Mapping[str, Any]) -> str:
        """Add a node; return the name of its output."""
        name = f"n{len(self._nodes)}"
        self._nodes.append(helper.make_node(op, [*inputs], [name], **attrs))
        return name

    def dequantized(self, name: str, values: Array, params: QParams, *, constant: bool) -> str:
        """Add codes, fed or constant, and their DequantizeLinear."""
        kind = BIAS if params.dtype.name == BIAS else params.dtype.name
        if kind not in (*CODES, BIAS) or (kind == BIAS and not constant):
            raise RefusedError(f"the form onnx-qdq has no codes of format {kind}")
        made = (self.constant if constant else self.feed)(f"{name}_codes" if constant else name, values.astype(kind))
        return self.node("DequantizeLinear", [made, *self._parameters(name, params, kind)], _axis(params))

    def quantized(self, name: str, params: QParams) -> str:
        """Add a QuantizeLinear after *name*."""
        return self.node("QuantizeLinear", [name, *self._parameters("y", params, _format(params))], _axis(params))

    def lowered(self, result: str, kind: str, shape: tuple[int, ...]) -> Lowered:
        """Return the model with *result* as its only output."""
        inputs = [
            helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(values.dtype), list(values.shape))
            for name, values in self._feeds.items()
        ]
        output = helper.make_tensor_value_info(result, helper.np_dtype_to_tensor_dtype(np.dtype(kind)), list(shape))
        constants = [numpy_helper.from_array(values, name) for name, values in self._constants.items()]
        graph = helper.make_graph(self._nodes, "case", inputs, [output], constants)
        opsets, version = [helper.make_opsetid("", self._opset)], WIDE_IR if self._opset == WIDE else IR_VERSION
        model = helper.make_model(graph, opset_imports=opsets, ir_version=version, producer_name="quantizer")
        return Lowered(Job(model.SerializeToString(), self._feeds, {}, [(kind, shape)]))

    def _parameters(self, name: str, params: QParams, kind: str) -> list[str]:
        if kind in ("int16", "uint16"):
            # QuantizeLinear has 16-bit codes since opset 21
            self._opset = WIDE
        scale, zero = params.scale.numpy().astype(np.float32), params.zero_point.numpy().astype(kind)
        return [self.constant(f"{name}_scale", scale), self.constant(f"{name}_zero", zero)]


def _axis(params: QParams) -> dict[str, int]:
    return {} if params.axis is None or params.scale.dim() == 0 else {"axis": params.axis}
