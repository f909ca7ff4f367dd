"""Convolutions and transposed convolutions: on floats, on codes with exact sums, on codes with requantization."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from quantizer.lang import arguments as a
from quantizer.lang.current import get_default_graph, operator
from quantizer.lang.errors import LangError
from quantizer.lang.graph import Result
from quantizer.lang.tensor import Numbers, Tensor

SUMS = ("int32", "uint32")
Sizes = Sequence[int] | None


def _windows(weight: Tensor, rank: int, stride: Sizes, dilation: Sizes, pad: Sizes, group: int) -> dict[str, Any]:
    """Return the attributes of a window over *rank* spatial axes; pads are all begins, then all ends."""
    return {
        "kernel_shape": weight.shape[2:],
        "strides": a.integers("stride", stride, rank, (1,) * rank, least=1),
        "dilations": a.integers("dilation", dilation, rank, (1,) * rank, least=1),
        "pads": a.integers("pad", pad, 2 * rank, (0,) * (2 * rank), least=0),
        "do_relu": False,
        "group": a.integer("group", group, least=1),
    }


def _fits(op: str, x: Tensor, weight: Tensor, bias: Tensor | None, group: int) -> None:
    """Refuse a weight with other channels than the input, or a bias without one number per filter.

    A convolution has [oc, ic / group, ...], a transposed one [oc / group, ic, ...].
    """
    channels, inner, out = x.shape[1], weight.shape[1], weight.shape[0]
    if op == "top.Deconv":
        a.coefficient("weight", weight)
        if inner != channels or channels % group:
            raise LangError(
                f"weight has shape {list(weight.shape)} and group={group}: its axis 1 must be the input's "
                f"{channels} channels, which group divides."
            )
        # weights of a transposed convolution are [oc / group, ic, ...]
        out *= group
    elif channels != inner * group:
        raise LangError(
            f"weight has shape {list(weight.shape)} and group={group}: its axis 1 must be the input's "
            f"{channels} channels / group."
        )
    if out % group:
        raise LangError(f"group={group}: must divide the {out} filters of weight.")
    if bias is not None and bias.shape not in ((out,), (1, out, *[1] * (len(x.shape) - 2))):
        raise LangError(f"bias has shape {list(bias.shape)}: must be [{out}] or [1, {out}, 1, ...].")


def _float_conv(
    op: str,
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    attrs: dict[str, Any],
    group: int,
    out_dtype: str | None,
    out_name: str | None,
) -> Tensor:
    _fits(op, x, weight, bias, group)
    if x.is_quantized or weight.is_quantized:
        raise LangError("input or weight is quantized: must be real numbers; use the function for codes.")
    if out_dtype is not None:
        a.one_of("out_dtype", out_dtype, (x.dtype,))
    return get_default_graph().add(op, [x, weight, bias], attrs, Result(x.dtype), out_name=out_name)[0]


def _floats(rank: int, x: Tensor, weight: Tensor, bias: Tensor | None) -> None:
    a.tensor("input", x, a.FLOATS, rank + 2)
    a.tensor("weight", weight, (x.dtype,), rank + 2)
    a.optional("bias", bias, (x.dtype,))


def _integers(rank: int, x: Tensor, weight: Tensor, bias: Tensor | None) -> None:
    a.tensor("input", x, a.CODES, rank + 2)
    a.tensor("weight", weight, a.CODES, rank + 2)
    a.optional("bias", bias, ("int32",))


def _int_sum(
    op: str,
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    attrs: dict[str, Any],
    group: int,
    input_zp: Numbers,
    weight_zp: Numbers,
    out_dtype: str | None,
    out_name: str | None,
) -> Tensor:
    """Add a convolution of codes whose result is the exact sum."""
    _fits(op, x, weight, bias, group)
    a.single("input_zp", input_zp)
    if op == "top.Deconv":
        a.single("weight_zp", weight_zp)
    kind = a.one_of("out_dtype", out_dtype or "int32", SUMS)
    for argument, tensor, zero in (("input", x, input_zp), ("weight", weight, weight_zp)):
        if zero is None and not tensor.is_quantized:
            raise LangError(f"{argument}_zp is None and {argument} is not quantized: must be given, 0 for none.")
    graph = get_default_graph()
    # an exact sum of codes needs zero points, but no scales
    graph.quantize(x, None, input_zp)
    graph.quantize(weight, None, weight_zp, axis=0)
    return graph.add(op, [x, weight, bias], attrs, Result(kind), out_name=out_name)[0]


def _quant(
    rank: int,
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    windows: tuple[Sizes, Sizes, Sizes, int],
    scales: tuple[Numbers, ...],
    zeros: tuple[Numbers, ...],
    out_dtype: str | None,
    out_name: str | None,
) -> Tensor:
    """Add a convolution of codes whose result is requantized; *windows*: stride, dilation, pad and group."""
    _integers(rank, x, weight, bias)
    attrs = _windows(weight, rank, *windows)
    _fits("top.Conv", x, weight, bias, windows[-1])
    # every second: the weights, in the middle, may have one for each filter
    for argument, scale, zero in zip(("input", "output"), scales[::2], zeros[::2], strict=True):
        a.single(f"{argument}_scale", scale)
        a.single(f"{argument}_zp", zero)
    kind = a.one_of("out_dtype", out_dtype or x.dtype, a.CODES)
    for argument, tensor, scale in (("input", x, scales[0]), ("weight", weight, scales[1])):
        if scale is None and tensor.scale is None:
            raise LangError(f"{argument}_scale is None and {argument} has no scale: must be given.")
    if scales[2] is None:
        raise LangError("output_scale is None: must be given.")
    graph = get_default_graph()
    graph.quantize(x, scales[0], zeros[0])
    graph.quantize(weight, scales[1], zeros[1], axis=0)
    result = Result(kind, scale=scales[2], zero_point=0 if zeros[2] is None else zeros[2])
    return graph.add("top.Conv", [x, weight, bias], attrs, result, out_name=out_name)[0]


def _conv_int(
    rank: int,
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    windows: tuple[Sizes, Sizes, Sizes, int],
    zeros: tuple[Numbers, Numbers],
    out_dtype: str | None,
    out_name: str | None,
) -> Tensor:
    _integers(rank, x, weight, bias)
    attrs = _windows(weight, rank, *windows)
    return _int_sum("top.Conv", x, weight, bias, attrs, windows[-1], *zeros, out_dtype, out_name)


@operator("NN/matrix")
def conv(
    input: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    stride: Sizes = None,
    dilation: Sizes = None,
    pad: Sizes = None,
    group: int = 1,
    out_dtype: str | None = None,
    out_name: str | None = None,
) -> Tensor:
    """Convolve floats [n, ic, h, w] with [oc, ic / group, kh, kw]; pad is [top, left, bottom, right]."""
    _floats(2, input, weight, bias)
    attrs = _windows(weight, 2, stride, dilation, pad, group)
    return _float_conv("top.Conv", input, weight, bias, attrs, group, out_dtype, out_name)


@operator("first TpuLang")
def conv_v2(
    tensor_i: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    stride: Sizes = None,
    dilation: Sizes = None,
    pad: Sizes = None,
    group: int = 1,
    input_zp: Numbers = None,
    weight_zp: Numbers = None,
    out_dtype: str | None = None,
    out_name: str | None = None,
) -> Tensor:
    """Convolve as the first TpuLang did: pad is [top, bottom, left, right], bias [1, oc, 1, 1].

    The written file has pads [top, left, bottom, right], as in Top. out_dtype None: the input's float type, else
    int32. A zero point of None means 0; a list for the weight has one entry for each of its oc filters.
    """
    a.tensor("tensor_i", tensor_i, a.FLOATS_AND_CODES, 4)
    if bias is not None and (not isinstance(bias, Tensor) or bias.shape != (1, weight.shape[0], 1, 1)):
        shown = list(bias.shape) if isinstance(bias, Tensor) else bias
        raise LangError(f"bias has shape {shown}: must be [1, {weight.shape[0]}, 1, 1].")
    top, bottom, left, right = a.integers("pad", pad, 4, (0, 0, 0, 0), least=0)
    order = (top, left, bottom, right)
    if tensor_i.dtype in a.FLOATS:
        if input_zp is not None or weight_zp is not None:
            raise LangError(f"input_zp={input_zp!r}, weight_zp={weight_zp!r} of {tensor_i.dtype}: must be None.")
        _floats(2, tensor_i, weight, bias)
        attrs = _windows(weight, 2, stride, dilation, order, group)
        return _float_conv("top.Conv", tensor_i, weight, bias, attrs, group, out_dtype, out_name)
    _integers(2, tensor_i, weight, bias)
    attrs = _windows(weight, 2, stride, dilation, order, group)
    zeros = (
        0 if input_zp is None and not tensor_i.is_quantized else input_zp,
        0 if weight_zp is None and not weight.is_quantized else weight_zp,
    )
    return _int_sum("top.Conv", tensor_i, weight, bias, attrs, group, *zeros, out_dtype, out_name)


@operator("NN/matrix")
def conv3d(
    input: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    stride: Sizes = None,
    dilation: Sizes = None,
    pad: Sizes = None,
    group: int = 1,
    out_dtype: str | None = None,
    out_name: str | None = None,
) -> Tensor:
    """Convolve floats [n, ic, d, h, w]; pad is three begins, then three ends."""
    _floats(3, input, weight, bias)
    attrs = _windows(weight, 3, stride, dilation, pad, group)
    return _float_conv("top.Conv", input, weight, bias, attrs, group, out_dtype, out_name)


@operator("NN/matrix")
def conv_int(
    input: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    stride: Sizes = None,
    dilation: Sizes = None,
    pad: Sizes = None,
    group: int = 1,
    input_zp: Numbers = None,
    weight_zp: Numbers = None,
    out_dtype: str | None = None,
    out_name: str | None = None,
) -> Tensor:
    """Convolve codes minus zero points with weights minus zero points, exactly, and add an int32 bias.

    Padding is the zero point.
    """
    windows, zeros = (stride, dilation, pad, group), (input_zp, weight_zp)
    return _conv_int(2, input, weight, bias, windows, zeros, out_dtype, out_name)


@operator("NN/matrix")
def conv3d_int(
    input: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    stride: Sizes = None,
    dilation: Sizes = None,
    pad: Sizes = None,
    group: int = 1,
    input_zp: Numbers = None,
    weight_zp: Numbers = None,
    out_dtype: str | None = None,
    out_name: str | None = None,
) -> Tensor:
    """Do the same as `conv_int` over three spatial axes."""
    windows, zeros = (stride, dilation, pad, group), (input_zp, weight_zp)
    return _conv_int(3, input, weight, bias, windows, zeros, out_dtype, out_name)


@operator("NN/matrix")
def conv_quant(
    input: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    stride: Sizes = None,
    dilation: Sizes = None,
    pad: Sizes = None,
    group: int = 1,
    input_scale: Numbers = None,
    weight_scale: Numbers = None,
    output_scale: Numbers = None,
    input_zp: Numbers = None,
    weight_zp: Numbers = None,
    output_zp: Numbers = None,
    out_dtype: str | None = None,
    out_name: str | None = None,
) -> Tensor:
    """Requantize the sums of conv_int: times input_scale * weight_scale / output_scale, as a multiplier of 31 bits.

    This is requant_int's mode 0, to which tpu-mlir lowers it: it rounds half up at 2**31, then half away from zero.
    weight_scale and weight_zp may be one for each filter.
    """
    windows = (stride, dilation, pad, group)
    scales, zeros = (input_scale, weight_scale, output_scale), (input_zp, weight_zp, output_zp)
    return _quant(2, input, weight, bias, windows, scales, zeros, out_dtype, out_name)


@operator("NN/matrix")
def conv3d_quant(
    input: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    stride: Sizes = None,
    dilation: Sizes = None,
    pad: Sizes = None,
    group: int = 1,
    input_scale: Numbers = None,
    weight_scale: Numbers = None,
    output_scale: Numbers = None,
    input_zp: Numbers = None,
    weight_zp: Numbers = None,
    output_zp: Numbers = None,
    out_dtype: str | None = None,
    out_name: str | None = None,
) -> Tensor:
    """Do the same as `conv_quant` over three spatial axes."""
    windows = (stride, dilation, pad, group)
    scales, zeros = (input_scale, weight_scale, output_scale), (input_zp, weight_zp, output_zp)
    return _quant(3, input, weight, bias, windows, scales, zeros, out_dtype, out_name)


def _extra(rank: int, output_padding: Sizes, stride: tuple[int, ...]) -> tuple[int, ...]:
    extra = a.integers("output_padding", output_padding, rank, (0,) * rank, least=0)
    if any(more >= step for more, step in zip(extra, stride, strict=True)):
        raise LangError(f"output_padding={list(extra)}: must be below stride={list(stride)}.")
    return extra


@operator("NN/matrix")
def deconv(
    input: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    stride: Sizes = None,
    dilation: Sizes = None,
    pad: Sizes = None,
    output_padding: Sizes = None,
    group: int = 1,
    out_dtype: str | None = None,
    out_name: str | None = None,
) -> Tensor:
    """Convolve floats [n, ic, h, w], transposed, with constants [oc / group, ic, kh, kw]; pad is cut off."""
    _floats(2, input, weight, bias)
    attrs = _windows(weight, 2, stride, dilation, pad, group)
    attrs["output_padding"] = _extra(2, output_padding, attrs["strides"])
    return _float_conv("top.Deconv", input, weight, bias, attrs, group, out_dtype, out_name)


@operator("NN/matrix")
def deconv3d(
    input: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    stride: Sizes = None,
    dilation: Sizes = None,
    pad: Sizes = None,
    output_padding: Sizes = None,
    group: int = 1,
    out_dtype: str | None = None,
    out_name: str | None = None,
) -> Tensor:
    """Do the same as `deconv` over three spatial axes."""
    _floats(3, input, weight, bias)
    attrs = _windows(weight, 3, stride, dilation, pad, group)
    attrs["output_padding"] = _extra(3, output_padding, attrs["strides"])
    return _float_conv("top.Deconv", input, weight, bias, attrs, group, out_dtype, out_name)


@operator("NN/matrix")
def deconv_int(
    input: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    stride: Sizes = None,
    dilation: Sizes = None,
    pad: Sizes = None,
    output_padding: Sizes = None,
    group: int = 1,
    input_zp: Numbers = None,
    weight_zp: Numbers = None,
    out_dtype: str | None = None,
    out_name: str | None = None,
) -> Tensor:
    """Convolve codes less their zero points, transposed, with exact sums."""
    _integers(2, input, weight, bias)
    attrs = _windows(weight, 2, stride, dilation, pad, group)
    attrs["output_padding"] = _extra(2, output_padding, attrs["strides"])
    return _int_sum("top.Deconv", input, weight, bias, attrs, group, input_zp, weight_zp, out_dtype, out_name)
