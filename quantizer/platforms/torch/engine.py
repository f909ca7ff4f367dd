"""torch's quantized operators: lowers a case to one operator under one of its engines, x86, fbgemm or qnnpack."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from torch import Tensor

from quantizer.core.errors import RefusedError
from quantizer.core.platforms import Platform
from quantizer.core.schemes import Scheme
from quantizer.core.shapes import infer_shapes
from quantizer.core.spec import Spec
from quantizer.numerics.qparams import Constant, Parameters, QParams
from quantizer.platforms.torch import joined
from quantizer.runtime.engines.frames import Array, Job
from quantizer.runtime.engines.lowering import Lowered, Wires
from quantizer.runtime.engines.protocol import Call

CHECKS = ("arithmetic", "accuracy", "tiled", "properties", "repeat", "engine")
CONVOLUTIONS = ("conv1d", "conv2d", "conv3d", "depthwise_conv2d")
POOLS = ("max_pool2d", "avg_pool2d")
PLAIN = tuple(
    (
        "fully_connected matmul add mul relu clip leaky_relu sigmoid tanh softmax global_avg_pool2d reduce_mean "
        "concat batch_norm transpose pad reshape gather quantize"
    ).split()
)
BATCH_NORM_AXES = 5
"""The largest number of axes: batch, channel and three more, because torch has nothing beyond batch_norm3d."""
BATCH_NORM_LEAST = 2
"""The smallest number of axes: batch and channel."""
KNOWN = (*CONVOLUTIONS, *POOLS, *PLAIN, "conv_transpose2d")
TYPES: Mapping[str, type[np.generic]] = {"value": np.uint8, "index": np.int64, "real": np.float32}
"""Kind of an input -> the type in which it is fed."""
IMAGE = 4
CHANNELS_FIRST = ("avg_pool2d", "global_avg_pool2d")
"""Averages round differently if channels are last in memory, so that they are always given channels first."""
# QNNPACK checks the ratios of scales when it creates an addition
QNNPACK_RATIOS = (2.0**-14, 2.0**8)


def supports(spec: Spec, scheme: Scheme, platform: Platform, variant: str) -> str | None:
    """Return None for an operator that has a quantized kernel."""
    if spec.op not in KNOWN:
        return f"torch has no quantized kernel for {spec.op}"
    return "QNNPACK has no 3-d convolution" if spec.op == "conv3d" and variant == "qnnpack" else None


def lower(call: Call, codes: Mapping[str, Tensor], parameters: Parameters, variant: str) -> Lowered:
    """Return the description of the operator, followed by its constants. The bias is dequantized to float32.

    Images are stored in the case's axis order, except for averages.
    """
    _refuse(call, codes, parameters, variant)
    types = {name: TYPES[call.spec.inputs[name].kind] for name in call.spec.activations if name in codes}
    feeds = {name: codes[name].numpy().astype(kind) for name, kind in types.items()}
    laid_out = [name for name in feeds if call.spec.inputs[name].spatial and feeds[name].ndim == IMAGE]
    last = bool(laid_out) and call.order == "channels_last" and call.spec.op not in CHANNELS_FIRST
    made: dict[str, Any] = {
        "kind": "convolution" if call.spec.op in CONVOLUTIONS else call.spec.op,
        "inputs": {name: _numbers(parameters.inputs[name]) for name in feeds if types[name] is np.uint8},
        "output": _numbers(parameters.outputs["y"]),
        "suffix": "_relu" if call.activation == "relu" else "",
        "channels_last": last,
        **{name: list(value) if isinstance(value, tuple) else value for name, value in call.attrs.items()},
    }
    made |= _windows(call, codes, parameters)
    constants, found = _constants(call, codes, parameters)
    made |= found | {"constants": [[name, values.dtype.str, list(values.shape)] for name, values in constants.items()]}
    raw = b"".join(np.ascontiguousarray(values).tobytes() for values in constants.values())
    return Lowered(Job(json.dumps(made).encode() + b"\n" + raw, feeds, {"engine": variant}))


def lower_float(call: Call, operands: Mapping[str, Tensor], variant: str) -> Lowered:
    """Refuse, because the reference already uses torch's float operators."""
    raise RefusedError("the float forward of torch is not compared")


def lower_sums(call: Call, codes: Mapping[str, Tensor], parameters: Parameters, variant: str) -> Lowered | None:
    """Return None: the kernels show no sums."""
    return None


def join(jobs: Sequence[Job], wires: Wires, outputs: Sequence[int]) -> Job:
    """Return one program of all operators, with torch's fused functions."""
    return joined.join(jobs, wires, outputs)


def _numbers(params: QParams) -> tuple[float, int]:
    return float(params.scale), int(params.zero_point)


def _constants(
    call: Call, codes: Mapping[str, Tensor], parameters: Parameters
) -> tuple[dict[str, Array], dict[str, Any]]:
    """Return the arrays of weights and bias, and what describes them; batch norm takes both as real numbers."""
    constants = {name: known for name, known in parameters.constants.items() if name in codes}
    if call.spec.op == "batch_norm":
        return {name: _real(codes[name], known) for name, known in constants.items()}, {}
    bias = {"bias": _real(codes["bias"], constants["bias"])} if "bias" in constants else {}
    if "weight" not in constants:
        return {}, {}
    weight, params = codes["weight"].numpy().astype(np.int8), constants["weight"].params
    transposed = call.spec.op == "conv_transpose2d"
    arrays: dict[str, Array] = {"weight": weight.swapaxes(0, 1) if transposed else weight, **bias}
    if params.scale.dim():
        return arrays | {"scales": params.scale.numpy()}, {"channel_axis": int(transposed)}
    return arrays, {"weight_scale": float(params.scale)}


def _real(codes: Tensor, known: Constant) -> Array:
    """Return float32 values of the codes of a vector."""
    values: Array = codes.numpy().astype(np.float32) * known.params.scale.numpy().astype(np.float32)
    return values


def _windows(call: Call, codes: Mapping[str, Tensor], parameters: Parameters) -> dict[str, Any]:
    """Return the padding that torch takes, one number for each axis, and the rest for an explicit padding."""
    op, attrs = call.spec.op, dict(call.attrs)
    values: Mapping[str, Any] = attrs
    if op == "pad":
        return {"around": _torch_order(_pairs(values["padding"]))}
    if op == "reduce_mean":
        return {"axes": list(values["axes"])}
    if "padding" not in values:
        return {}
    pairs = _pairs(values["padding"])
    least = [min(pair) for pair in pairs]
    if op in POOLS:
        # torch's pools allow padding of at most half a kernel
        least = [min(most, size // 2) for most, size in zip(least, values["kernel"], strict=True)]
    # torch pads both sides alike: what one side has more is padded explicitly, or cropped from a transposed result
    left = [(low - m, high - m) for (low, high), m in zip(pairs, least, strict=True)]
    scale, zero = _numbers(parameters.inputs["x"])
    found = {
        "padding": least,
        "around": _torch_order(left),
        "crop": left,
        # the value of code 0, the smallest
        "fill": -zero * scale if op == "max_pool2d" else 0.0,
    }
    if op in CONVOLUTIONS:
        found["groups"] = values.get("groups", codes["x"].shape[1])
    return found


def _pairs(padding: Sequence[int]) -> list[tuple[int, int]]:
    rank = len(padding) // 2
    return list(zip(padding[:rank], padding[rank:], strict=True))


def _torch_order(pairs: Sequence[tuple[int, int]]) -> list[int]:
    # F.pad counts from the last axis
    return [size for pair in reversed(pairs) for size in pair]


def _refuse(call: Call, codes: Mapping[str, Tensor], parameters: Parameters, variant: str) -> None:
    """Refuse cases that torch cannot express."""
    op, values = call.spec.op, dict(call.attrs)
    attrs: Mapping[str, Any] = values
    if call.activation not in ("none", "relu"):
        raise RefusedError(f"torch fuses no {call.activation}")
    if attrs.get("batch_dims"):
        raise RefusedError("torch's index_select pairs no axes of its operands")
    if op == "batch_norm" and not BATCH_NORM_LEAST <= codes["x"].dim() <= BATCH_NORM_AXES:
        raise RefusedError(f"torch's quantized batch_norm takes {BATCH_NORM_LEAST} to {BATCH_NORM_AXES} axes")
    if op in POOLS:
        _refuse_pool(call, codes)
    if variant != "qnnpack":
        return
    if any(not values.dim() for values in codes.values()):
        raise RefusedError("QNNPACK takes a tensor without axes for an empty one")
    if op in POOLS and tuple(attrs["kernel"]) == (1, 1) and not attrs["ceil_mode"]:
        raise RefusedError("QNNPACK has no pools of one place")
    output = parameters.outputs["y"]
    if call.activation == "relu" and int(output.zero_point) == output.qmax:
        raise RefusedError("QNNPACK takes no empty range of output codes")
    if op == "add" and codes["a"].shape == codes["b"].shape:
        ratios = [np.float32(x.scale) / np.float32(output.scale) for x in parameters.inputs.values()]
        if not QNNPACK_RATIOS[0] <= min(ratios) <= max(ratios) < QNNPACK_RATIOS[1]:
            raise RefusedError("QNNPACK adds under ratios of scales from 2**-14 to 2**8")


def _refuse_pool(call: Call, codes: Mapping[str, Tensor]) -> None:
    attrs: Mapping[str, Any] = call.attrs
    pairs, x = _pairs(attrs["padding"]), codes["x"]
    uneven = any(low != high or low > size // 2 for (low, high), size in zip(pairs, attrs["kernel"], strict=True))
    if uneven and (attrs["ceil_mode"] or not attrs.get("count_include_pad", True)):
        raise RefusedError("torch pads both sides equally, by no more than half a kernel")
    if call.spec.op == "avg_pool2d" and attrs["ceil_mode"] and attrs["count_include_pad"]:
        windows = infer_shapes(call.spec, {"x": tuple(x.shape)}, call.attrs)["y"][2:]
        ends = [(n - 1) * s + k for n, s, k in zip(windows, attrs["stride"], attrs["kernel"], strict=True)]
        # torch divides by the number of places within the padding; the case counts all
        if any(end > size + sum(pair) for end, size, pair in zip(ends, x.shape[2:], pairs, strict=True)):
            raise RefusedError("torch leaves places beyond the padding out of its count")
