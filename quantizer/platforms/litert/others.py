"""LiteRT: sums, pools, functions of one input and moved codes as models of its operators."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from quantizer.core.errors import RefusedError
from quantizer.core.shapes import infer_shapes
from quantizer.numerics.qparams import Parameters, QParams
from quantizer.numerics.quantize import quantize
from quantizer.numerics.windows import pool_padding
from quantizer.platforms.litert.model import TensorDef
from quantizer.platforms.litert.part import (
    ACTIVATIONS,
    SAME,
    VALID,
    Graph,
    Lower,
    activation,
    channels_first,
    fused,
    input_of,
    integers,
    output_of,
)
from quantizer.runtime.engines.lowering import Lowered, first
from quantizer.runtime.engines.protocol import Call

Codes = Mapping[str, Tensor]
# of PADV2's kernel
PAD_AXES = 5
ELEMENTWISE = {"add": "ADD", "sub": "SUB", "mul": "MUL", "maximum": "MAXIMUM", "minimum": "MINIMUM"}
OPTIONS = {"add": "AddOptions", "sub": "SubOptions", "mul": "MulOptions"}
FUNCTIONS = {"relu": "RELU", "sigmoid": "LOGISTIC", "tanh": "TANH"}
INDEX_TYPE = 4
"""The schema's number of INT64, the result type that importers give ARG_MAX."""


def elementwise(call: Call, codes: Codes, parameters: Parameters | None, variant: str) -> Lowered:
    """Return ADD, SUB or MUL with its fused activation, or MAXIMUM or MINIMUM before one; 16 bits take any scale."""
    made, op = Graph(), call.spec.op
    inputs = _fed(made, codes, parameters)
    options: dict[str, Any] = {}
    if op in OPTIONS:
        options["fused_activation_function"] = fused(call, output_of(parameters))
    if op in ("add", "sub"):
        # the default, true, would ask for power-of-two scales in 16 bits
        options["pot_scale_int16"] = False
    output = activation("y", _shape(call, codes), output_of(parameters))
    table = OPTIONS.get(op, "MaximumMinimumOptions")
    end = made.apply(ELEMENTWISE[op], table, options, inputs, output)
    if op not in OPTIONS and call.activation != "none":
        # MAXIMUM and MINIMUM have no fused activation, so that RELU follows
        end = made.apply(call.activation.upper(), None, {}, [end], output)
    return Lowered(made.job(end, variant))


def function(call: Call, codes: Codes, parameters: Parameters | None, variant: str) -> Lowered:
    """Return RELU, LOGISTIC or TANH."""
    return _plain(FUNCTIONS[call.spec.op], None, {}, call, codes, parameters, variant)


def leaky_rectifier(call: Call, codes: Codes, parameters: Parameters | None, variant: str) -> Lowered:
    """Lower leaky_relu to LEAKY_RELU."""
    options = {"alpha": call.attrs["slope"]}
    return _plain("LEAKY_RELU", "LeakyReluOptions", options, call, codes, parameters, variant)


def softmax(call: Call, codes: Codes, parameters: Parameters | None, variant: str) -> Lowered:
    """Return SOFTMAX, which reduces the last axis. Another axis is transposed to the end, as importers do."""
    axis: Any = call.attrs["axis"]
    made = Graph()
    values = np.moveaxis(codes["x"].numpy(), axis, -1)
    inputs = [made.feed("x", values, input_of(parameters, "x"))]
    output = activation("y", values.shape, output_of(parameters))
    end = made.apply("SOFTMAX", "SoftmaxOptions", {"beta": 1.0}, inputs, output)
    return Lowered(made.job(end, variant), lambda outputs: np.moveaxis(outputs[0], -1, axis))


def pool(call: Call, codes: Codes, parameters: Parameters | None, variant: str) -> Lowered:
    """Return AVERAGE_POOL_2D or MAX_POOL_2D under SAME or VALID; other padding becomes a PADV2 before VALID."""
    attrs: Mapping[str, Any] = call.attrs
    largest, params, x = call.spec.op == "max_pool2d", input_of(parameters, "x"), codes["x"].numpy()
    kernel, stride = attrs["kernel"], attrs["stride"]
    around = pool_padding(x.shape[2:], kernel, stride, attrs["padding"], ceil_mode=attrs["ceil_mode"])
    made, image = Graph(), np.moveaxis(x, 1, -1)
    start, own = made.feed("x", image, params), VALID
    # SAME leaves padded places out of a mean's count
    left_out = largest or not attrs["count_include_pad"]
    axes = zip(x.shape[2:], kernel, stride, around, strict=True)
    if any(map(any, around)) and left_out and all(_is_same(*axis) for axis in axes):
        own = SAME
    elif any(map(any, around)):
        if not largest and left_out:
            raise RefusedError("LiteRT's AVERAGE_POOL_2D leaves places out of its count under padding SAME alone")
        # explicit padding counts as elements, so that a maximum needs the smallest code
        code = _filler(params, largest=largest)
        start = _padded(made, start, image.shape, [(0, 0), *around, (0, 0)], code, params)
    options = {
        "padding": own,
        "stride_h": stride[0],
        "stride_w": stride[1],
        "filter_height": kernel[0],
        "filter_width": kernel[1],
        "fused_activation_function": fused(call, output_of(parameters)),
    }
    # the spec's order; the model has channels last
    n, c, *size = _shape(call, codes)
    output = activation("y", (n, *size, c), output_of(parameters))
    kind = "MAX_POOL_2D" if largest else "AVERAGE_POOL_2D"
    return Lowered(made.job(made.apply(kind, "Pool2DOptions", options, [start], output), variant), channels_first)


def global_mean(call: Call, codes: Codes, parameters: Parameters | None, variant: str) -> Lowered:  # noqa: ARG001 - the protocol's
    """Return MEAN over rows and columns: importers convert a global average pooling to it."""
    made, image = Graph(), np.moveaxis(codes["x"].numpy(), 1, -1)
    start = made.feed("x", image, input_of(parameters, "x"))
    shape = (image.shape[0], 1, 1, image.shape[3])
    end = _reduced(made, "MEAN", start, (1, 2), activation("y", shape, output_of(parameters)), kept=True)
    return Lowered(made.job(end, variant), channels_first)


def reduction(call: Call, codes: Codes, parameters: Parameters | None, variant: str) -> Lowered:
    """Return MEAN or SUM."""
    attrs: Mapping[str, Any] = call.attrs
    made = Graph()
    inputs = _fed(made, codes, parameters)
    output = activation("y", _shape(call, codes), output_of(parameters))
    kind = "MEAN" if call.spec.op == "reduce_mean" else "SUM"
    end = _reduced(made, kind, inputs[0], attrs["axes"], output, kept=attrs["keepdims"])
    return Lowered(made.job(end, variant))


def argmax(call: Call, codes: Codes, parameters: Parameters | None, variant: str) -> Lowered:
    """Return ARG_MAX with 64-bit indices, which takes the first of equal codes and drops the axis."""
    attrs: Mapping[str, Any] = call.attrs
    if attrs["select_last"]:
        raise RefusedError("LiteRT's ARG_MAX takes the first of equal codes, never the last")
    shape, axis = codes["x"].shape, attrs["axis"] % codes["x"].dim()
    made = Graph()
    inputs = [*_fed(made, codes, parameters), made.add(integers("axis", (axis,)))]
    # ARG_MAX always drops the axis
    kept = tuple(size for place, size in enumerate(shape) if place != axis)
    output = TensorDef("y", kept, "int64")
    end = made.apply("ARG_MAX", "ArgMaxOptions", {"output_type": INDEX_TYPE}, inputs, output)
    if not attrs["keepdims"]:
        return Lowered(made.job(end, variant))
    return Lowered(made.job(end, variant), lambda outputs: np.expand_dims(outputs[0], axis))


def concatenation(call: Call, codes: Codes, parameters: Parameters | None, variant: str) -> Lowered:
    """Return CONCATENATION of operands that share their parameters."""
    options = {"axis": call.attrs["axis"], "fused_activation_function": ACTIVATIONS["none"]}
    return _plain("CONCATENATION", "ConcatenationOptions", options, call, codes, parameters, variant)


def transposition(call: Call, codes: Codes, parameters: Parameters | None, variant: str) -> Lowered:
    """Lower transpose to TRANSPOSE, with perm as a constant operand."""
    perm: Any = call.attrs["perm"]
    return _plain("TRANSPOSE", "TransposeOptions", {}, call, codes, parameters, variant, integers("perm", perm))


def padding(call: Call, codes: Codes, parameters: Parameters | None, variant: str) -> Lowered:
    """Return PADV2 with the code of the value."""
    attrs: Mapping[str, Any] = call.attrs
    params, rank = input_of(parameters, "x"), codes["x"].dim()
    made = Graph()
    code = attrs["value"]
    if parameters is not None and params is not None:
        # the file's code of the value, by the platform's own quantizer
        code = int(quantize(torch.tensor(code), params, parameters.platform.quantizer))
    if rank > PAD_AXES:
        raise RefusedError(f"PADV2 takes at most {PAD_AXES} axes")
    around = list(zip(attrs["padding"][:rank], attrs["padding"][rank:], strict=True))
    start = _fed(made, codes, parameters)[0]
    return Lowered(made.job(_padded(made, start, tuple(codes["x"].shape), around, code, params), variant))


def reshaping(call: Call, codes: Codes, parameters: Parameters | None, variant: str) -> Lowered:
    """Return RESHAPE."""
    shape: Any = call.attrs["shape"]
    options = {"new_shape": shape}
    return _plain("RESHAPE", "ReshapeOptions", options, call, codes, parameters, variant, integers("shape", shape))


def gathering(call: Call, codes: Codes, parameters: Parameters | None, variant: str) -> Lowered:
    """Return GATHER by indices counted from the front, as importers write them: the kernel takes no others."""
    attrs: Mapping[str, Any] = call.attrs
    x, own = codes["x"].numpy(), codes["indices"].numpy()
    axis = attrs["axis"] % x.ndim
    made = Graph()
    inputs = [made.feed("x", x, input_of(parameters, "x")), made.add(TensorDef("indices", own.shape, "int32"))]
    made.feeds["indices"] = np.where(own < 0, own + x.shape[axis], own).astype(np.int32)  # in the order of the inputs
    output = activation("y", _shape(call, codes), output_of(parameters))
    options = {"axis": axis, "batch_dims": attrs["batch_dims"]}
    return Lowered(made.job(made.apply("GATHER", "GatherOptions", options, inputs, output), variant))


def quantization(call: Call, codes: Codes, parameters: Parameters | None, variant: str) -> Lowered:
    """Return a QUANTIZE of float32 numbers. A float run is refused: TensorFlow Lite has no operator for it."""
    if parameters is None:
        raise RefusedError("TensorFlow Lite has no operator that leaves float32 numbers as they are")
    return _plain("QUANTIZE", "QuantizeOptions", {}, call, codes, parameters, variant)


LOWERINGS: Mapping[str, Lower] = {
    **dict.fromkeys(ELEMENTWISE, elementwise),
    **dict.fromkeys(FUNCTIONS, function),
    "leaky_relu": leaky_rectifier,
    "softmax": softmax,
    "max_pool2d": pool,
    "avg_pool2d": pool,
    "global_avg_pool2d": global_mean,
    "reduce_mean": reduction,
    "reduce_sum": reduction,
    "argmax": argmax,
    "concat": concatenation,
    "transpose": transposition,
    "pad": padding,
    "reshape": reshaping,
    "gather": gathering,
    "quantize": quantization,
}
"""Operator -> its lowering."""


def _fed(made: Graph, codes: Codes, parameters: Parameters | None) -> list[int]:
    return [made.feed(name, values.numpy(), input_of(parameters, name)) for name, values in codes.items()]


def _plain(
    code: str,
    options_type: str | None,
    options: Mapping[str, Any],
    call: Call,
    codes: Codes,
    parameters: Parameters | None,
    variant: str,
    *constants: TensorDef,
) -> Lowered:
    """Return a model of one operator, whose inputs are all operands of the call, then *constants*."""
    made = Graph()
    inputs = [*_fed(made, codes, parameters), *(made.add(constant) for constant in constants)]
    output = activation("y", _shape(call, codes), output_of(parameters))
    return Lowered(made.job(made.apply(code, options_type, options, inputs, output), variant), first)


def _filler(params: QParams | None, *, largest: bool) -> float:
    """Return the number that pads an image: the smallest one for a maximum, else the one that stands for 0."""
    if params is None:
        return -math.inf if largest else 0.0
    return params.qmin if largest else int(params.zero_point)


def _shape(call: Call, codes: Codes) -> tuple[int, ...]:
    return infer_shapes(call.spec, {name: tuple(values.shape) for name, values in codes.items()}, call.attrs)["y"]


def _reduced(made: Graph, code: str, start: int, axes: Sequence[int], output: TensorDef, *, kept: bool) -> int:
    inputs = [start, made.add(integers("axes", axes))]
    return made.apply(code, "ReducerOptions", {"keep_dims": kept}, inputs, output)


def _padded(
    made: Graph, start: int, shape: Sequence[int], around: Sequence[Sequence[int]], code: float, params: QParams | None
) -> int:
    """Return the index of a tensor that is padded with codes."""
    numbers = made.add(TensorDef("around", (len(shape), 2), "int32", data=np.array(around, np.int32)))
    single = activation("value", (1,), params)
    # PADV2 demands the padding value in the format and with the parameters of its operand
    value = TensorDef(
        "value", (1,), single.dtype, single.scales, single.zero_points, data=np.array([code], single.dtype)
    )
    padded = activation("padded", [n + sum(pair) for n, pair in zip(shape, around, strict=True)], params)
    return made.apply("PADV2", "PadV2Options", {}, [start, numbers, made.add(value)], padded)


def _is_same(size: int, kernel: int, stride: int, around: Sequence[int]) -> bool:
    """Return whether padding SAME adds exactly these elements before and after an axis."""
    total = max(0, (-(-size // stride) - 1) * stride + kernel - size)
    return tuple(around) == (total // 2, total - total // 2)
