"""MNN on the processor, in float32: dequantize, one expression, quantize.

The converter of quantized models is in `MNN.tools`, which runs pip on import and is therefore not used. So each
operator is an expression on float32 operands.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any

import MNN
import MNN.expr as F
import numpy as np

NAME, VERSION, FORM, FLOATS = "mnn", MNN.version(), "npz", True
Made = Mapping[str, Any]
Values = Mapping[str, Any]
Array = Any
UNARY = tuple(
    (
        "abs atan ceil cos erf exp floor log negative reciprocal relu rsqrt sigmoid sin softplus softsign sqrt square "
        "tanh"
    ).split()
)
RENAMED = {"cosine": "cos", "sine": "sin"}
BINARY = {
    "add": F.add,
    "sub": F.subtract,
    "mul": F.multiply,
    "div": F.divide,
    "maximum": F.maximum,
    "minimum": F.minimum,
}
REDUCTIONS = {
    "reduce_sum": F.reduce_sum,
    "reduce_mean": F.reduce_mean,
    "reduce_max": F.reduce_max,
    "reduce_min": F.reduce_min,
}


def _unary(name: str) -> Callable[[Made, Values], Any]:
    function = getattr(F, RENAMED.get(name, name))
    return lambda _, v: function(v["x"])


def _binary(function: Callable[[Any, Any], Any]) -> Callable[[Made, Values], Any]:
    return lambda _, v: function(v["a"], v["b"])


def _reduced(function: Callable[..., Any]) -> Callable[[Made, Values], Any]:
    return lambda made, v: function(v["x"], made["attrs"]["axes"], made["attrs"]["keepdims"])


def _product(made: Made, v: Values) -> Any:
    y = F.matmul(v["x"], v["weight"], False, True)  # noqa: FBT003 - of the first, of the second: transposed
    return F.add(y, v["bias"]) if "bias" in v else y


def _pads(attrs: Made) -> tuple[int, int]:
    """Return the padding of width and height; MNN's expressions have one number for both ends, the width first."""
    top, left, bottom, right = attrs["padding"]
    if (top, left) != (bottom, right):
        raise NotImplementedError("an expression of MNN has the same padding at both ends")
    return left, top


def _pooled(made: Made, v: Values) -> Any:
    attrs = made["attrs"]
    pads = _pads(attrs)
    sizes = zip(reversed(v["x"].shape[2:]), pads, reversed(attrs["kernel"]), reversed(attrs["stride"]), strict=True)
    if any((size + 2 * pad - length) % step for size, pad, length, step in sizes):
        raise NotImplementedError("an expression of MNN rounds the count of windows up by rules of its own")
    if made["op"] == "avg_pool2d" and any(pads) and not attrs["count_include_pad"]:
        raise NotImplementedError("an average of MNN's expressions counts the padding")
    function = F.max_pool if made["op"] == "max_pool2d" else F.avg_pool
    # [::-1]: MNN names the width first
    return _channels_first(function(_packed(v["x"]), attrs["kernel"][::-1], attrs["stride"][::-1], F.CAFFE, pads))


def _convolved(made: Made, v: Values) -> Any:
    attrs, x = made["attrs"], v["x"]
    # a depthwise convolution has no such attribute: one group for each channel
    groups = attrs.get("groups", x.shape[1])
    bias = v["bias"] if "bias" in v else F.const([0.0] * v["weight"].shape[0], [v["weight"].shape[0]])
    if groups not in (1, x.shape[1]):
        raise NotImplementedError("an expression of MNN convolves all channels together, or each alone")
    if groups > 1 and v["weight"].shape[0] != groups:
        raise NotImplementedError("an expression of MNN has one filter for each channel of a depthwise convolution")
    arguments = (attrs["stride"][::-1], _pads(attrs), attrs["dilation"][::-1], groups, F.CAFFE)
    return _channels_first(F.conv2d(_packed(x), v["weight"], bias, *arguments))


def _packed(x: Any) -> Any:
    # MNN's convolutions and pools work on channels in groups of four
    return F.convert(x, F.NC4HW4)


def _channels_first(y: Any) -> Any:
    return F.convert(y, F.NCHW)


FUNCTIONS: Mapping[str, Callable[[Made, Values], Any]] = {
    **{name: _unary(name) for name in (*UNARY, *RENAMED) if name not in RENAMED.values()},
    **{name: _binary(function) for name, function in BINARY.items()},
    **{name: _reduced(function) for name, function in REDUCTIONS.items()},
    "matmul": lambda _, v: F.matmul(v["a"], v["b"]),
    "fully_connected": _product,
    "softmax": lambda made, v: F.softmax(v["x"], made["attrs"]["axis"]),
    "elu": lambda made, v: F.elu(v["x"], made["attrs"]["alpha"]),
    "max_pool2d": _pooled,
    "avg_pool2d": _pooled,
    "conv2d": _convolved,
    "depthwise_conv2d": _convolved,
}
"""Operator -> its expression on float32 operands."""
OPERATORS = [*FUNCTIONS]
ACTIVATIONS: Mapping[str, Callable[[Array], Array]] = {
    "none": lambda y: y,
    "relu": lambda y: np.maximum(y, 0),
    "relu6": lambda y: np.clip(y, 0, 6),
}


def _real(codes: Array, known: Made | None) -> Array:
    if known is None:
        return codes
    scale, zero = np.array(known["scale"], np.float32), np.array(known["zero_point"], np.int64)
    if scale.ndim:
        shape = [-1 if axis == (known["axis"] or 0) else 1 for axis in range(codes.ndim)]
        scale, zero = scale.reshape(shape), zero.reshape(shape)
    return (codes.astype(np.int64) - zero).astype(np.float32) * scale


def _operand(values: Array) -> Any:
    if not values.size:
        raise NotImplementedError("MNN has no tensor without elements")
    held = np.ascontiguousarray(values, np.float32)
    return F.const(held, list(values.shape), F.NCHW, F.float)


def load(model: bytes, options: dict[str, Any]) -> Any:
    """Return the case. Its expression is created when the weights arrive, together with the codes."""
    return json.loads(model)


def run(session: Any, feeds: dict[str, Any]) -> list[Any]:
    """Return the output codes of one case, computed in float32 between dequantized operands and quantization."""
    made = session
    names = [name for name in feeds if not name.startswith("table ")]
    values = {name: _operand(_real(feeds[name], made["inputs"].get(name))) for name in names}
    y = np.array(FUNCTIONS[made["op"]](made, values).read(), np.float32).reshape(made["output"]["shape"])
    return [_codes(ACTIVATIONS[made["activation"]](y), made["output"])]


def _codes(y: Array, output: Made) -> Array:
    if output["type"] == "float32":
        return y
    steps = np.rint(y / np.float32(output["scale"])) + np.float32(output["zero_point"])
    return np.clip(steps, output["lowest"], output["highest"]).astype(output["type"])
