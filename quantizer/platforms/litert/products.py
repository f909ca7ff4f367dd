"""LiteRT: convolutions, fully connected layers and matrix products as models of its operators."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from torch import Tensor

from quantizer.core.errors import RefusedError
from quantizer.core.shapes import infer_shapes
from quantizer.numerics.qparams import Parameters, QParams
from quantizer.platforms.litert.model import ABSENT, TensorDef
from quantizer.platforms.litert.part import (
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
from quantizer.runtime.engines.frames import Array
from quantizer.runtime.engines.lowering import Lowered
from quantizer.runtime.engines.protocol import Call

Sizes = tuple[int, ...]
# BATCH_MATMUL refuses operands of more axes when it is prepared
MATMUL_AXES = 5
# GetQuantizedConvolutionMultiplier of TensorFlow Lite: |product scale - bias scale| / output scale may be at most this
BIAS_SCALE_SLACK = 0.02
BIASES = {8: "int32", 16: "int64"}
"""Bits of activations -> format of a bias."""


def convolution(call: Call, codes: Mapping[str, Tensor], parameters: Parameters | None, variant: str) -> Lowered:
    """Return CONV_2D with weights [o, kh, kw, c / groups]; a 1-d signal is a row, as in TensorFlow's importer."""
    x, weight = codes["x"].numpy(), codes["weight"].numpy()
    weights = _filters(np.moveaxis(_as_image(weight), 1, -1), parameters, 0)
    return _convolved(call, "CONV_2D", "Conv2DOptions", {}, _as_image(x), weights, codes, parameters, variant)


def depthwise_convolution(
    call: Call, codes: Mapping[str, Tensor], parameters: Parameters | None, variant: str
) -> Lowered:
    """Return DEPTHWISE_CONV_2D, whose weights are [1, kh, kw, o]."""
    x, weight = codes["x"].numpy(), codes["weight"].numpy()
    # how many outputs each input channel has
    options = {"depth_multiplier": weight.shape[0] // max(1, x.shape[1])}
    weights = _filters(np.transpose(weight, (1, 2, 3, 0)), parameters, 3)
    return _convolved(
        call, "DEPTHWISE_CONV_2D", "DepthwiseConv2DOptions", options, x, weights, codes, parameters, variant
    )


def transposed_convolution(
    call: Call, codes: Mapping[str, Tensor], parameters: Parameters | None, variant: str
) -> Lowered:
    """Return TRANSPOSE_CONV, with dilation and groups as zeros in its weights [o, kh, kw, c], and a crop after it.

    The operator itself crops only as padding SAME does. That is used if the case has this crop and no stride is larger
    than the kernel.
    Rows after the last window, which contain only the bias, are part of its output's shape.
    """
    attrs: Mapping[str, Any] = call.attrs
    # TRANSPOSE_CONV has neither dilation nor groups, so the weights carry both as zeros
    x, weight = codes["x"].numpy(), _spread(codes["weight"].numpy(), attrs["dilation"], attrs["groups"])
    stride, crop, output = attrs["stride"], attrs["padding"], output_of(parameters)
    if any(extra >= step for extra, step in zip(attrs["output_padding"], stride, strict=True)):
        raise RefusedError("TRANSPOSE_CONV adds fewer rows after its last window than its stride")
    n, o, *size = infer_shapes(call.spec, {name: tuple(c.shape) for name, c in codes.items()}, attrs)["y"]
    # padding is (top, left, bottom, right): the first half is cropped before, the second behind
    axes = zip(x.shape[2:], weight.shape[2:], stride, size, crop[:2], crop[2:], strict=True)
    own = any(crop) and all(_is_own_crop(*axis) for axis in axes)
    # under VALID the operator returns the rows to crop as well
    whole = size if own else [sum(ends) for ends in zip(size, crop[:2], crop[2:], strict=True)]
    made = Graph()
    inputs = [
        made.add(integers("shape", (n, *whole, o))),
        made.add(_filters(np.moveaxis(weight, 1, -1), parameters, 0)),
        made.feed("x", np.moveaxis(x, 1, -1), input_of(parameters, "x")),
        *_bias(made, codes, parameters),
    ]
    options = {
        "padding": SAME if own else VALID,
        "stride_h": stride[0],
        "stride_w": stride[1],
        "fused_activation_function": fused(call, output_of(parameters)),
    }
    end = made.apply("TRANSPOSE_CONV", "TransposeConvOptions", options, inputs, activation("y", (n, *whole, o), output))
    if any(crop) and not own:
        ends = [made.add(integers("begin", (0, *crop[:2], 0))), made.add(integers("size", (n, *size, o)))]
        cropped = activation("cropped", (n, *size, o), output)
        end = made.apply("SLICE", "SliceOptions", {}, [end, *ends], cropped)
    return Lowered(made.job(end, variant), channels_first)


def fully_connected(call: Call, codes: Mapping[str, Tensor], parameters: Parameters | None, variant: str) -> Lowered:
    """Return FULLY_CONNECTED, whose weights are [o, c]."""
    made = Graph()
    x, weight = codes["x"].numpy(), codes["weight"].numpy()
    inputs = [
        made.feed("x", x, input_of(parameters, "x")),
        made.add(_filters(weight, parameters, 0)),
        # the operator has three operands: an absent bias needs its place
        *(_bias(made, codes, parameters) or [ABSENT]),
    ]
    _check_bias_scale(made, inputs[1:], parameters)
    options = {"fused_activation_function": fused(call, output_of(parameters))}
    output = activation("y", (x.shape[0], weight.shape[0]), output_of(parameters))
    return Lowered(made.job(made.apply("FULLY_CONNECTED", "FullyConnectedOptions", options, inputs, output), variant))


def matrix_product(call: Call, codes: Mapping[str, Tensor], parameters: Parameters | None, variant: str) -> Lowered:
    """Return BATCH_MATMUL of two inputs of the model."""
    if max(codes[name].dim() for name in ("a", "b")) > MATMUL_AXES:
        raise RefusedError(f"BATCH_MATMUL takes at most {MATMUL_AXES} axes")
    made = Graph()
    inputs = [made.feed(name, codes[name].numpy(), input_of(parameters, name)) for name in ("a", "b")]
    shape = infer_shapes(call.spec, {n: tuple(c.shape) for n, c in codes.items()}, call.attrs)["y"]
    output = activation("y", shape, output_of(parameters))
    return Lowered(made.job(made.apply("BATCH_MATMUL", "BatchMatMulOptions", {}, inputs, output), variant))


LOWERINGS: Mapping[str, Lower] = {
    "conv1d": convolution,
    "conv2d": convolution,
    "depthwise_conv2d": depthwise_convolution,
    "conv_transpose2d": transposed_convolution,
    "fully_connected": fully_connected,
    "matmul": matrix_product,
}
"""Operator -> its lowering."""


def _convolved(
    call: Call,
    code: str,
    options_type: str,
    options: Mapping[str, Any],
    x: Array,
    weights: TensorDef,
    codes: Mapping[str, Tensor],
    parameters: Parameters | None,
    variant: str,
) -> Lowered:
    """Return a convolution of images *x*, with a separate padding if SAME and VALID do not fit.

    An absent bias becomes zeros.
    """
    attrs: Mapping[str, Any] = call.attrs
    # a 1-d window; LiteRT has only 2-d ones
    flat = len(attrs["stride"]) == 1
    stride, dilation, padding = (_for_rows(attrs[name], flat=flat) for name in ("stride", "dilation", "padding"))
    kernel = weights.shape[1:3]
    shapes = {name: tuple(c.shape) for name, c in codes.items()}
    # [n, o, spatial ...]
    size = infer_shapes(call.spec, shapes, call.attrs)["y"]
    made, params, image = Graph(), input_of(parameters, "x"), np.moveaxis(x, 1, -1)
    start, own = made.feed("x", image, params), VALID
    # without padding VALID always fits; SAME is written only where it pads exactly as the case does
    if any(padding):
        spans = list(zip(padding[:2], padding[2:], strict=True))
        if spans == [_same_padding(*axis) for axis in zip(x.shape[2:], kernel, stride, dilation, strict=True)]:
            own = SAME
        else:
            # the axes are n, h, w, c
            around = [(0, 0), *spans, (0, 0)]
            padded = activation("padded", [n + sum(span) for n, span in zip(image.shape, around, strict=True)], params)
            # PAD fills with the zero point of its operand, which stands for 0
            numbers = TensorDef("around", (4, 2), "int32", data=np.array(around, np.int32))
            start = made.apply("PAD", "PadOptions", {}, [start, made.add(numbers)], padded)
    choices = {
        **options,
        "padding": own,
        "stride_h": stride[0],
        "stride_w": stride[1],
        "dilation_h_factor": dilation[0],
        "dilation_w_factor": dilation[1],
        "fused_activation_function": fused(call, output_of(parameters)),
    }
    shape = (size[0], 1, *size[2:], size[1]) if flat else (size[0], *size[2:], size[1])
    zeros = {"bias": codes["weight"].new_zeros(size[1])}
    inputs = [start, made.add(weights), *_bias(made, {**zeros, **codes}, parameters)]
    end = made.apply(code, options_type, choices, inputs, activation("y", shape, output_of(parameters)))
    return Lowered(made.job(end, variant), _row if flat else channels_first)


def _row(outputs: tuple[Array, ...]) -> Array:
    """Return rows of height 1 as signals, channels first."""
    return np.moveaxis(outputs[0][:, 0], -1, 1)


def _as_image(values: Array) -> Array:
    """Return signals as images of height 1."""
    return values[:, :, None] if values.ndim == 3 else values


def _for_rows(values: Sizes, *, flat: bool) -> Sizes:
    """Return the numbers of a 1-d window as those of a 2-d window on rows of height 1."""
    rest = 1 if len(values) == 1 else 0
    return tuple(itertools.chain.from_iterable((rest, v) for v in values)) if flat else tuple(values)


def _same_padding(size: int, kernel: int, stride: int, dilation: int) -> tuple[int, int]:
    """Return how many elements SAME adds before and after an axis."""
    # SAME: as many windows as steps, rounded up; the odd element of the padding comes last
    windows = -(-size // stride)
    total = max(0, (windows - 1) * stride + (kernel - 1) * dilation + 1 - size)
    return total // 2, total - total // 2


def _is_own_crop(size: int, kernel: int, stride: int, out: int, before: int, after: int) -> bool:
    """Return whether padding SAME crops a transposed convolution along an axis to *out*, just like the case."""
    total = (size - 1) * stride + kernel - out
    return kernel >= stride and -(-out // stride) == size and (total // 2, total - total // 2) == (before, after)


def _spread(weight: Array, dilation: Sizes, groups: int) -> Array:
    """Return filters [o, c, kh, kw] without dilation and groups: [o / groups, c, kh, kw], filled up with zeros."""
    o, c, kh, kw = weight.shape
    rows, columns = ((k - 1) * d + 1 for k, d in zip((kh, kw), dilation, strict=True))
    # group g has filters for all inputs, but only those of its own inputs are not zero
    wide = np.zeros((groups, o, c, rows, columns), weight.dtype)
    for group in range(groups):
        own = slice(group * c // groups, (group + 1) * c // groups)
        wide[group, :, own, :: dilation[0], :: dilation[1]] = weight[:, own]
    return wide.reshape(groups * o, c, rows, columns)


def _filters(weight: Array, parameters: Parameters | None, axis: int) -> TensorDef:
    """Add weights whose channels lie along *axis*, and return the constant; a single scale stays a single one."""
    if parameters is None:
        return TensorDef("weight", weight.shape, "float32", data=np.ascontiguousarray(weight, np.float32))
    params = parameters.constants["weight"].params
    scales, bits = _scales(params, weight.shape[axis]), params.dtype.bits
    data = np.ascontiguousarray(weight.astype(np.int8))
    # two 4-bit codes to a byte, so that the buffer is not an array of the tensor's shape
    packed = data if bits > 4 else _pairs(data)
    return TensorDef("weight", data.shape, f"int{bits}", scales, (), axis, packed)


def _pairs(codes: Array) -> bytes:
    """Return 4-bit codes packed in pairs, the first in the low half."""
    # an odd number of codes is filled up with one zero; & 15 keeps the two's complement of 4 bits
    flat = np.append(codes.ravel(), np.zeros(codes.size % 2, np.int8)).astype(np.uint8) & 15
    return (flat[0::2] | flat[1::2] << 4).astype(np.uint8).tobytes()


def _bias(made: Graph, codes: Mapping[str, Tensor], parameters: Parameters | None) -> list[int]:
    """Return the index of the bias, if any. Its scale is the float32 product of the input's and the weights' scales."""
    if "bias" not in codes:
        return []
    bias = codes["bias"].numpy()
    if parameters is None:
        return [made.add(TensorDef("bias", bias.shape, "float32", data=bias.astype(np.float32)))]
    x, params = parameters.inputs["x"], parameters.constants["weight"].params
    # the product is rounded to float32, because importers compute and the file holds float32 scales
    factor = np.float32(float(x.scale))
    scales = tuple(float(factor * np.float32(scale)) for scale in _scales(params, bias.size))
    kind = BIASES[x.dtype.bits]
    return [made.add(TensorDef("bias", bias.shape, kind, scales, data=bias.astype(kind)))]


def _check_bias_scale(made: Graph, places: Sequence[int], parameters: Parameters | None) -> None:
    """Raise RefusedError if FULLY_CONNECTED would refuse the bias.

    It does if the bias scale is too far from the scale of the products, measured in output steps. A float32 bias scale
    can be that far where output steps are small.
    """
    # the operator checks the bias scale only where the weights have a single scale
    if parameters is None or ABSENT in places or len(scales := made.tensors[places[1]].scales) > 1:
        return
    product = float(parameters.inputs["x"].scale) * made.tensors[places[0]].scales[0]
    if abs(product - scales[0]) > BIAS_SCALE_SLACK * float(parameters.outputs["y"].scale):
        raise RefusedError(
            "FULLY_CONNECTED refuses a bias whose scale is 2 % of an output step from that of the products"
        )


def _scales(params: QParams, channels: int) -> Sizes:
    """Return one scale, or one for each of *channels*; the scales of a group's filters are repeated for each group."""
    return tuple(params.repeated(channels).scale.reshape(-1).tolist())
