"""Operators as nodes of ONNX: names, attributes, and inputs that are attributes in our specs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from quantizer.core.case import AttrValue
from quantizer.core.errors import RefusedError
from quantizer.core.shapes import infer_shapes
from quantizer.core.spec import Spec
from quantizer.runtime.engines.frames import Array

_WINDOW = {"pads": "padding", "strides": "stride", "dilations": "dilation", "kernel_shape": "kernel"}
_ALPHA = {"alpha": "alpha"}
_AXIS = {"axis": "axis"}
_CHOICE = {"axis": "axis", "keepdims": "keepdims", "select_last_index": "select_last"}
_REDUCTION = {"axes": "axes", "keepdims": "keepdims"}
ATTRIBUTES: Mapping[str, Mapping[str, str]] = {
    "conv_transpose2d": {"group": "groups", "output_padding": "output_padding"},
    "max_pool2d": {"ceil_mode": "ceil_mode"},
    "avg_pool2d": {"ceil_mode": "ceil_mode", "count_include_pad": "count_include_pad"},
    "leaky_relu": {"alpha": "slope"},
    **dict.fromkeys(("elu", "celu", "thresholded_relu"), _ALPHA),
    "selu": {"alpha": "alpha", "gamma": "gamma"},
    **dict.fromkeys(("softmax", "log_softmax", "concat", "gather", "gather_elements"), _AXIS),
    "transpose": {"perm": "perm"},
    **dict.fromkeys(("argmax", "argmin"), _CHOICE),
    "depth_to_space": {"blocksize": "block", "mode": "mode"},
    "gelu": {"approximate": "approximate"},
    **dict.fromkeys(("reduce_max", "reduce_mean", "reduce_min"), _REDUCTION),
    "reduce_sum": {"keepdims": "keepdims"},
}
"""Operator -> attribute of its node -> attribute of the spec. Attributes of windows are listed separately."""
WINDOWED = ("conv1d", "conv2d", "conv3d", "depthwise_conv2d", "conv_transpose2d", "max_pool2d", "avg_pool2d")
GROUPED = ("conv1d", "conv2d", "conv3d", "depthwise_conv2d")


def node_attributes(op: str, attrs: Mapping[str, AttrValue], channels: int) -> dict[str, Any]:
    """Return the attributes of the float node; *channels*.

    The number of groups of a convolution without that attribute.
    """
    windows = {name: ours for name, ours in _WINDOW.items() if op in WINDOWED and ours in attrs}
    made = {name: _plain(attrs[ours]) for name, ours in {**ATTRIBUTES.get(op, {}), **windows}.items()}
    if op in GROUPED:
        made["group"] = attrs.get("groups", channels)
    return {**made, "transB": 1} if op == "fully_connected" else made


def _plain(value: AttrValue) -> Any:
    if isinstance(value, bool):
        return int(value)
    return list(value) if isinstance(value, tuple) else value


def attribute_inputs(op: str, attrs: Mapping[str, AttrValue]) -> dict[str, Array]:
    """Return the inputs of a node that are attributes in our specs."""
    match op:
        case "reshape":
            return {"shape": np.array(attrs["shape"], np.int64)}
        case "pad":
            return {"pads": np.array(attrs["padding"], np.int64), "value": np.array(attrs["value"], np.float32)}
        case "clip":
            return {name: np.array(attrs[name], np.float32) for name in ("low", "high")}
        case "reduce_sum" | "squeeze":
            return {"axes": np.array(attrs["axes"], np.int64)}
        case "slice":
            names = {"starts": "begin", "ends": "end", "axes": "", "steps": "strides"}
            begin: Any = attrs["begin"]
            whole = {name: attrs[ours] if ours else range(len(begin)) for name, ours in names.items()}
            return {name: np.array(numbers, np.int64) for name, numbers in whole.items()}
        case _:
            return {}


def refuse_inexpressible(spec: Spec, attrs: Mapping[str, AttrValue], shapes: Mapping[str, tuple[int, ...]]) -> None:
    """Raise RefusedError if ONNX's float node computes something other than *spec*."""
    refuse_pairs(attrs)
    values: Mapping[str, Any] = attrs
    if any(
        more >= step for more, step in zip(values.get("output_padding", ()), values.get("stride", ()), strict=False)
    ):
        raise RefusedError("ONNX requires an output padding below the stride")
    if attrs.get("ceil_mode") and "x" in shapes and adds_window(spec, attrs, shapes["x"]):
        raise RefusedError(
            "pools of ONNX before opset 22 do not say whether a window that begins in the padding counts"
        )
    if spec.op == "avg_pool2d" and "x" in shapes and overhangs(spec, attrs, shapes["x"]):
        raise RefusedError("AveragePool leaves places beyond the padding out of its count")


def refuse_pairs(attrs: Mapping[str, AttrValue]) -> None:
    """Raise RefusedError for a Gather that pairs axes."""
    if attrs.get("batch_dims"):
        raise RefusedError("ONNX's Gather pairs no axes of its operands")


def adds_window(spec: Spec, attributes: Mapping[str, AttrValue], shape: tuple[int, ...]) -> bool:
    """Return whether rounding up by ONNX's formula gives one more window than *spec*."""
    attrs: Mapping[str, Any] = attributes
    pads, strides, kernel = attrs["padding"], attrs["stride"], attrs["kernel"]
    windows = infer_shapes(spec, {"x": shape}, attrs)["y"][2:]
    # pads are (top, left, bottom, right): every second one belongs to the same axis
    spans = [size + sum(pads[axis::2]) - kernel[axis] for axis, size in enumerate(shape[2:])]
    return any(-(-span // step) + 1 > n for span, step, n in zip(spans, strides, windows, strict=True))


def overhangs(spec: Spec, attributes: Mapping[str, AttrValue], shape: tuple[int, ...]) -> bool:
    """Return whether some window of an average, padding counted, extends beyond the padding."""
    attrs: Mapping[str, Any] = attributes
    if not (attrs["ceil_mode"] and attrs["count_include_pad"]):
        return False
    padded = [size + sum(attrs["padding"][axis::2]) for axis, size in enumerate(shape[2:])]
    windows = infer_shapes(spec, {"x": shape}, attrs)["y"][2:]
    ends = [(n - 1) * s + k for n, s, k in zip(windows, attrs["stride"], attrs["kernel"], strict=True)]
    return any(end > size for end, size in zip(ends, padded, strict=True))
