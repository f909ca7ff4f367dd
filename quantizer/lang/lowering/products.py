"""Convolutions and matrix products. Floats are computed as in ONNX, codes by exact integer sums."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from quantizer.core.dtypes import DTYPES
from quantizer.core.errors import UnsupportedError
from quantizer.lang.lowering.emitter import Emitter, Value
from quantizer.lang.lowering.lower import Call, lowers
from quantizer.lang.lowering.rounding import as_codes
from quantizer.lang.tensor import Quantization
from quantizer.numerics.qparams import QParams


@lowers("Conv")
def conv(c: Call) -> Value:
    """Convolve floats; codes give the sum of centred products, which is the result or is requantized."""
    bias = c.value(2) if c.has(2) else None
    rank = c.value().rank - 2
    sizes = {
        "strides": c.attr("strides"),
        "dilations": c.attr("dilations") or (1,) * rank,
        "pads": c.attr("pads"),
        "group": c.attr("group"),
        "kernel_shape": c.attr("kernel_shape"),
        "auto_pad": "NOTSET",
    }
    if not c.value().dtype.is_integer:
        return c.activated(c.e.op("Conv", c.value(), c.value(1), _flat(c.e, bias), **sizes))
    x, zero = unsigned(c, 0)
    sums = _centred_sums(c, x, c.value(1), zero, sizes)
    return _finished(c, _with_bias(c.e, sums, bias, rank), channel_axis=1)


@lowers("Deconv")
def deconv(c: Call) -> Value:
    """Compute floats by ConvTranspose, codes by an exact convolution of the spread input with the reversed filter."""
    rank = c.value().rank - 2
    group, strides, pads = c.attr("group"), c.attr("strides"), c.attr("pads")
    dilations, extra = c.attr("dilations") or (1,) * rank, c.attr("output_padding") or (0,) * rank
    bias = c.value(2) if c.has(2) else None
    w = c.value(1)
    if not c.value().dtype.is_integer:
        to_input = c.e.op("Transpose", w, perm=(1, 0, *range(2, w.rank))) if w.data is not None else w
        result = c.e.op(
            "ConvTranspose",
            c.value(),
            to_input,
            _flat(c.e, bias),
            strides=strides,
            dilations=dilations,
            pads=pads,
            output_padding=extra,
            group=group,
            kernel_shape=c.attr("kernel_shape"),
            auto_pad="NOTSET",
        )
        return c.activated(result)
    x, zero = unsigned(c, 0)
    # a transposed convolution is a convolution of the input with zeros between its elements and the filter reversed
    spread = _spread(c.e, x, strides, zero)
    reach = [hole * (k - 1) for hole, k in zip(dilations, w.shape[2:], strict=True)]
    # pads of a transposed convolution are cut off its result, so they reduce the padding of the inverse one
    around = [(r - pads[i], r - pads[i + rank] + extra[i]) for i, r in enumerate(reach)]
    if min(min(pair) for pair in around) < 0:
        raise UnsupportedError(f"pads {list(pads)} cut more than a filter of {list(w.shape[2:])} adds.")
    # ONNX has no reversal: a slice by steps of -1, whose end lies before every first place
    flipped = c.e.op(
        "Slice", _by_output(c.e, w, group), [-1] * rank, [-(1 << 31)] * rank, list(range(2, 2 + rank)), [-1] * rank
    )
    sizes = {
        "strides": (1,) * rank,
        "dilations": dilations,
        "pads": tuple(p[0] for p in around) + tuple(p[1] for p in around),
        "group": group,
        "kernel_shape": c.attr("kernel_shape"),
        "auto_pad": "NOTSET",
    }
    sums = _centred_sums(c, spread, flipped, zero, sizes)
    return _finished(c, _with_bias(c.e, sums, bias, rank), channel_axis=1)


def _centred_sums(c: Call, x: Value, w: Value, zero: Value, sizes: dict[str, Any]) -> Value:
    """Return int32 sums of centred codes.

    The contribution of the filters' zero points is subtracted with the windows' sums.

    Weights are also unsigned, because ONNX Runtime's sums of unsigned by signed bytes saturate on some processors.
    """
    moved, offset = _moved(c.e, w, c.params(1))
    if offset.dim() == 0:
        return c.e.op("ConvInteger", x, moved, zero, c.e.constant(offset, DTYPES["uint8"]), **sizes)
    none = c.e.constant(torch.tensor(0, dtype=torch.uint8))
    sums = c.e.op("ConvInteger", x, moved, zero, none, **sizes)
    # sum x * (w - o) = sum x * w - o * sum x, and filters of ones give the sums of x
    ones = c.e.constant(torch.ones(w.shape, dtype=torch.uint8))
    windows = c.e.op("ConvInteger", x, ones, zero, none, **sizes)
    along = offset.to(torch.int32).reshape([-1, *[1] * (x.rank - 2)])
    return c.e.op("Sub", sums, c.e.op("Mul", windows, along))


def _by_output(e: Emitter, w: Value, group: int) -> Value:
    """Return a filter [oc / group, ic, ...] in the order of a convolution: [oc, ic / group, ...]."""
    out, inner, rest = w.shape[0], w.shape[1] // group, w.shape[2:]
    parts = e.op("Reshape", w, [out, group, inner, *rest], allowzero=0)
    order = (1, 0, *range(2, 3 + len(rest)))
    return e.op("Reshape", e.op("Transpose", parts, perm=order), [group * out, inner, *rest], allowzero=0)


def _spread(e: Emitter, x: Value, strides: Sequence[int], zero: Value) -> Value:
    """Return x with `stride - 1` zero points between its elements along each spatial axis."""
    for i, step in enumerate(strides):
        if step == 1:
            continue
        axis, shape = 2 + i, list(x.shape)
        # [.., size, 1] -> [.., size, step] -> [.., size * step], without the zero points behind the last element
        one = e.op("Unsqueeze", x, [axis + 1])
        pads = [0] * (2 * one.rank)
        pads[one.rank + axis + 1] = step - 1
        wide = e.op("Pad", one, pads, zero, mode="constant")
        shape[axis] *= step
        whole = e.op("Reshape", wide, shape, allowzero=0)
        x = e.op("Slice", whole, [0], [shape[axis] - step + 1], [axis], [1])
    return x


def unsigned(c: Call, i: int) -> tuple[Value, Value]:
    """Return operand *i* as uint8 with its zero point: signed codes are moved by 128, as ONNX's sums need."""
    value, zero = _moved(c.e, c.value(i), c.params(i))
    return value, c.e.constant(zero.reshape(()), DTYPES["uint8"])


def _moved(e: Emitter, value: Value, params: QParams | None) -> tuple[Value, torch.Tensor]:
    """Return codes as uint8, and their zero points."""
    zero = torch.tensor(0) if params is None else params.zero_point
    if value.dtype.name == "int8":
        value = e.cast(e.op("Add", e.cast(value, "int32"), 128), "uint8")
        zero = zero + 128
    # equal zero points are one number, which ConvInteger takes itself
    return value, zero if bool((zero != zero.reshape(-1)[0]).any()) else zero.reshape(-1)[0]


def _flat(e: Emitter, bias: Value | None) -> Value | None:
    return None if bias is None else bias if bias.rank == 1 else e.op("Reshape", bias, [-1], allowzero=0)


def _with_bias(e: Emitter, sums: Value, bias: Value | None, rank: int) -> Value:
    return sums if bias is None else e.op("Add", sums, e.op("Reshape", bias, [-1, *[1] * rank], allowzero=0))


def _finished(c: Call, sums: Value, channel_axis: int) -> Value:
    """Return int32 sums in the result's format: unchanged, or requantized by the scales of operands and result."""
    target = c.outputs[0]
    if target.dtype.name in ("int32", "uint32"):
        return c.e.cast(c.e.op("Relu", sums) if c.attr("do_relu") else sums, target.dtype)
    left, right, out = c.params(0), c.params(1), target.qparams or Quantization().qparams(target.dtype.name, 1)
    scales = [torch.ones((), dtype=torch.float64) if p is None else p.scale for p in (left, right, out)]
    ratio = scales[0] * scales[1] / scales[2]
    if ratio.dim():
        ratio = ratio.reshape([-1 if i == channel_axis % sums.rank else 1 for i in range(sums.rank)])
    return as_codes(c.e, c.e.cast(c.e.op("Relu", sums) if c.attr("do_relu") else sums, "int64"), ratio, out)


@lowers("MatMul")
def matmul(c: Call) -> Value:
    """Multiply matrices, batched over leading axes and transposed on request; codes give exact int32 sums."""
    e, a, b = c.e, c.value(), c.value(1)
    bias = c.value(2) if c.has(2) else None
    integers = a.dtype.is_integer
    a_zero = b_zero = None
    if integers:
        (a, a_zero), (b, b_zero) = unsigned(c, 0), unsigned(c, 1)
    if _is_dense(c, a, b, bias):
        dense = e.op("Gemm", a, b, bias, alpha=1.0, beta=1.0, transA=0, transB=int(c.attr("right_transpose")))
        return c.activated(swapped(e, dense) if c.attr("output_transpose") else dense)
    if c.attr("left_transpose"):
        a = swapped(e, a)
    if c.attr("right_transpose"):
        b = swapped(e, b)
    # a dense layer may read an image: its axes are flattened as far as the weights have rows
    if b.rank == 2 and a.rank > 1 and a.shape[-1] != b.shape[0]:
        a = _collapsed(e, a, b.shape[0])
    y = e.op("MatMulInteger", a, b, a_zero, b_zero) if integers else e.op("MatMul", a, b)
    if bias is not None:
        y = e.op("Add", y, bias)
    if c.attr("output_transpose"):
        y = swapped(e, y)
    if not c.attr("keep_dims"):
        y = e.op("Reshape", y, [-1, y.shape[-1]], allowzero=0)
    return _finished(c, y, channel_axis=-1) if integers else c.activated(y)


def _is_dense(c: Call, a: Value, b: Value, bias: Value | None) -> bool:
    """Return whether a float matrix is multiplied by constant weights, with a row of biases or without."""
    rows = b.shape[-1 if c.attr("right_transpose") else 0]
    fits = a.rank == b.rank == 2 and a.shape[1] == rows and b.data is not None and not a.dtype.is_integer
    return fits and not c.attr("left_transpose") and (bias is None or bias.rank == 1)


def _collapsed(e: Emitter, a: Value, wanted: int) -> Value:
    """Return a with its last axes flattened into one of *wanted* elements, as the original does for a dense layer."""
    size, first = 1, a.rank
    while first > 0 and size < wanted:
        first -= 1
        size *= a.shape[first]
    if size != wanted:
        raise UnsupportedError(f"a product of {list(a.shape)} with {wanted} rows: the inner sizes must be the same.")
    return e.op("Reshape", a, [*a.shape[:first], wanted], allowzero=0)


def swapped(e: Emitter, x: Value) -> Value:
    """Return x with its last two axes swapped."""
    order = list(range(x.rank))
    if x.rank < 2:
        raise UnsupportedError(f"a transpose of shape {list(x.shape)}: must have two axes or more.")
    order[-2:] = [order[-1], order[-2]]
    return e.op("Transpose", x, perm=order)
