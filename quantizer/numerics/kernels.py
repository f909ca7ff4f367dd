"""Exact integer kernels: convolutions, products and window sums on centred codes (`code - zero_point`), in int64.

Operands are integers in any dtype; int8 operands reach a kernel without a scan of their values. A float kernel is used
only if its mantissa holds every partial sum exactly, so that the order of additions does not matter.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor

from quantizer.core.errors import GraphError, QuantizerError
from quantizer.numerics.windows import (
    Padding,
    channelwise_conv,
    flip_weights,
    from_patches,
    from_runs,
    int64_conv,
    pad_spatial,
    patch_weights,
    patches,
    run_length,
    runs,
    spread,
    window_sizes,
)

Kernel = Literal["int_mm", "float32", "chunked", "float64", "int64"]
Overflow = Literal["unbounded", "wrap", "saturate", "forbidden"]

FLOAT32_EXACT = 1 << 24  # every integer up to 2**24 is a float32 number, so sums below it are exact in any order
FLOAT64_EXACT = 1 << 53  # the same for float64
MOST_PIECES = 4
"""If a float32 reduction must be split into more pieces than this, float64 is faster."""
INT_MM_WORK = 1 << 22
"""From so many multiplications on, the integer matrix product is faster although its operands are rearranged."""
MANY_CHANNELS = 1024
"""From so many channels on, each with filters of its own, a loop over the window's places is faster than torch's loop
over the channels."""
MOST_IN_RUNS = 1.5
"""Copy runs (long contiguous pieces), not patches, while a run has at most this many times the output's elements."""

_CONV: dict[int, Callable[..., Tensor]] = {1: F.conv1d, 2: F.conv2d, 3: F.conv3d}
_CONV_TRANSPOSE: dict[int, Callable[..., Tensor]] = {
    1: F.conv_transpose1d,
    2: F.conv_transpose2d,
    3: F.conv_transpose3d,
}
# the largest absolute value of a dtype; operands of other dtypes must be read for it
_LARGEST = {torch.bool: 1, torch.int8: 128, torch.uint8: 255, torch.int16: 32768}


def pin_float32() -> None:
    """Turn off the shortcuts by which torch computes float32 products in bfloat16, TF32 or Winograd form.

    Their results are not sums of float32 products. This module calls the function on import. NNPACK would run
    convolutions of 16 or more images where torch's mkldnn is off.
    """
    torch.backends.nnpack.set_flags(False)
    torch.set_float32_matmul_precision("highest")
    mkldnn = getattr(torch.backends, "mkldnn", None)
    # older versions of torch lack some of these switches
    for place in (torch.backends, mkldnn, *(getattr(mkldnn, part, None) for part in ("conv", "matmul", "rnn"))):
        if hasattr(place, "fp32_precision"):
            setattr(place, "fp32_precision", "ieee")  # noqa: B010


pin_float32()


def choose(bound: int, *, int8: bool = False, work: int = 0, pieces: int = 0) -> Kernel:
    """Return the fastest kernel that is exact while the sums of absolute products stay within *bound*.

    *int8*: whether one matrix product of int8 operands can compute it. *work*: the number of its multiplications.
    *pieces*: the number of parts into which float32 must split the reduction, 0 if it cannot. GraphError if a sum may
    leave int64.
    """
    # the int8 product adds in int32, which must hold every partial sum
    if int8 and work >= INT_MM_WORK and bound < 1 << 31 and int_mm_is_exact():
        return "int_mm"
    if bound <= FLOAT32_EXACT:
        return "float32"
    # each slice of the reduction is exact in float32; the slices are added in int64
    if 0 < pieces <= MOST_PIECES and bound < FLOAT64_EXACT:
        return "chunked"
    if bound < FLOAT64_EXACT:
        return "float64"
    if bound < 1 << 63:
        return "int64"
    raise GraphError(f"sum of products up to {bound}: must stay in int64. Narrow operands or shorten the sum.")


def conv(
    x: Tensor,
    w: Tensor,
    *,
    stride: Sequence[int] | None = None,
    padding: Padding | None = None,
    dilation: Sequence[int] | None = None,
    groups: int = 1,
) -> Tensor:
    """Return the int64 convolution of (N, C, spatial...) *x* with (O, C/groups, kernel...) *w*, 1 to 3 spatial axes.

    *padding* is zeros before and after each axis; a spatial size of *x* may be 0 where padding fills the window.
    """
    rank = x.dim() - 2
    stride, dilation = stride or [1] * rank, dilation or [1] * rank
    padding = padding or [(0, 0)] * rank
    _check_groups(x.shape[1], w.shape[1] * groups, w.shape[0], groups)
    out = window_sizes(x.shape[2:], w.shape[2:], stride, padding, dilation)
    taps = math.prod(w.shape[1:])
    # one matrix product computes only one group
    work = x.shape[0] * math.prod(out) * w.shape[0] * taps if groups == 1 else 0
    bound, x_max, w_max = _bound(x, w, taps, [0], work)
    # the number of input channels whose products float32 adds exactly; 0 if one channel is already too many
    channels = FLOAT32_EXACT // max(1, x_max * w_max * math.prod(w.shape[2:]))
    kernel = choose(
        bound,
        int8=work >= INT_MM_WORK and _fits_int8(x, x_max) and _fits_int8(w, w_max),
        work=work,
        pieces=math.ceil(w.shape[1] / channels) if groups == 1 and channels else 0,
    )
    if kernel == "int_mm":
        return _conv_int_mm(x.to(torch.int8), w.to(torch.int8), stride, padding, dilation, out)
    if groups >= MANY_CHANNELS and groups == x.shape[1]:
        return channelwise_conv(x, w, stride, padding, dilation)
    if kernel == "int64":
        return int64_conv(x, w, stride, padding, dilation, groups)
    # torch pads both ends alike, and convolves no empty tensor
    uneven = any(before != after for before, after in padding) or 0 in x.shape
    if uneven:
        x, padding = pad_spatial(x, padding), [(0, 0)] * rank
    run = functools.partial(
        _CONV[rank], stride=stride, padding=[before for before, _ in padding], dilation=dilation, groups=groups
    )
    return _run_float(run, x, w, kernel, channels, (1, 1))


def conv_transpose(
    x: Tensor,
    w: Tensor,
    *,
    stride: Sequence[int] | None = None,
    padding: Padding | None = None,
    output_padding: Sequence[int] | None = None,
    dilation: Sequence[int] | None = None,
    groups: int = 1,
) -> Tensor:
    """Return the int64 transposed convolution of (N, C, spatial...) *x* with (C, O/groups, kernel...) *w*.

    Size: `(size - 1) * stride - before - after + dilation * (kernel - 1) + output_padding + 1`. Padding crops.
    """
    rank = x.dim() - 2
    stride, dilation = stride or [1] * rank, dilation or [1] * rank
    padding, output_padding = padding or [(0, 0)] * rank, output_padding or [0] * rank
    _check_groups(x.shape[1], w.shape[0], w.shape[1] * groups, groups)
    axes = zip(x.shape[2:], stride, dilation, w.shape[2:], strict=True)
    full = [(size - 1) * s + d * (k - 1) + 1 for size, s, d, k in axes]
    out = [f - before - after + o for f, (before, after), o in zip(full, padding, output_padding, strict=True)]
    if min(out) < 1:
        raise GraphError(f"transposed convolution of size {list(x.shape[2:])}: padding {padding} crops all of {full}.")
    if 0 in x.shape:
        return torch.zeros(x.shape[0], w.shape[1] * groups, *out, dtype=torch.int64)
    # weights as [groups, C/groups, O/groups, kernel...]: an output sums over the axes 1 and 3 and up
    bound, _, _ = _bound(x, w.reshape(groups, -1, *w.shape[1:]), w.numel() // (w.shape[1] * groups), [0, 2], 0)
    kernel = choose(bound)
    if kernel == "int64":
        # a transposed convolution equals a convolution with flipped weights, after zeros are put between elements of x
        around = [(d * (k - 1),) * 2 for d, k in zip(dilation, w.shape[2:], strict=True)]
        whole = int64_conv(spread(x, stride), flip_weights(w, groups), [1] * rank, around, dilation, groups)
    else:
        run = functools.partial(_CONV_TRANSPOSE[rank], stride=stride, dilation=dilation, groups=groups)
        whole = _run_float(run, x, w, kernel, 0, (1, 0))
    for axis, (size, (before, _)) in enumerate(zip(out, padding, strict=True), 2):
        first = min(before, whole.shape[axis])
        whole = whole.narrow(axis, first, min(size, whole.shape[axis] - first))
    # output_padding may ask for outputs behind the last window, where no input contributes
    missing = [(0, size - have) for size, have in zip(out, whole.shape[2:], strict=True)]
    return pad_spatial(whole, missing).contiguous()


def linear(x: Tensor, w: Tensor) -> Tensor:
    """Return int64 `x @ w.T` of (..., K) codes and (O, K) weights."""
    return matmul(x, w.t())


def matmul(a: Tensor, b: Tensor) -> Tensor:
    """Return the int64 product of (..., M, K) and (..., K, N) codes, leading axes broadcast."""
    if a.dim() < 1 or b.dim() < 2 or a.shape[-1] != b.shape[-2]:
        raise GraphError(f"matmul of {tuple(a.shape)} and {tuple(b.shape)}: the inner sizes must be equal.")
    inner = a.shape[-1]
    # torch._int_mm has no batch axes
    work = a.numel() * b.shape[-1] if b.dim() == 2 else 0
    bound, a_max, b_max = _bound(a, b, inner, [b.dim() - 1], work)
    length = FLOAT32_EXACT // max(1, a_max * b_max)
    kernel = choose(
        bound,
        int8=work >= INT_MM_WORK and _fits_int8(a, a_max) and _fits_int8(b, b_max),
        work=work,
        pieces=math.ceil(inner / length) if length else 0,
    )
    if kernel == "int_mm":
        product = _int_mm(a.reshape(-1, inner).to(torch.int8), b.to(torch.int8, memory_format=torch.contiguous_format))
        return product.reshape(*a.shape[:-1], b.shape[-1]).to(torch.int64)
    if kernel == "int64":
        return torch.matmul(a.to(torch.int64), b.to(torch.int64))
    return _run_float(torch.matmul, a, b, kernel, length, (-1, -2))


def pool_sum(
    x: Tensor,
    kernel: Sequence[int],
    *,
    stride: Sequence[int] | None = None,
    padding: Padding | None = None,
    dilation: Sequence[int] | None = None,
) -> Tensor:
    """Return int64 sums over the windows of (N, C, spatial...) *x*, zeros outside; one axis at a time."""
    rank = x.dim() - 2
    stride, dilation = stride or kernel, dilation or [1] * rank
    padding = padding or [(0, 0)] * rank
    out = window_sizes(x.shape[2:], kernel, stride, padding, dilation)
    bound = _largest(x) * math.prod(kernel)
    # int32 where every sum fits, because it moves half the bytes
    total = pad_spatial(x.to(torch.int32 if bound < 1 << 31 else torch.int64), padding)
    # a window sum is separable: the cost is the sum of the kernel's sizes, not their product
    for axis, (size, k, s, d) in enumerate(zip(out, kernel, stride, dilation, strict=True), 2):
        # a single window covers the axis
        if k == total.shape[axis]:
            total = total.sum(axis, keepdim=True, dtype=total.dtype)
            continue
        # the t-th element of all windows along this axis is one strided slice
        span = (size - 1) * s + 1
        index = (slice(None),) * axis
        parts = [total[(*index, slice(t * d, t * d + span, s))] for t in range(k)]
        total = functools.reduce(torch.add, parts)
    return total.to(torch.int64)


def limit(acc: Tensor, bits: int, overflow: Overflow) -> Tensor:
    """Return *acc* in *bits* bits: wrapped, saturated or unchanged. QuantizerError if overflow is forbidden."""
    if overflow == "unbounded" or bits >= 64:
        return acc
    low, high = -(1 << (bits - 1)), (1 << (bits - 1)) - 1
    if overflow == "wrap":  # modulo 2**bits, shifted so that the results start at the smallest signed number
        return ((acc - low) & ((1 << bits) - 1)) + low
    if overflow == "saturate":
        return acc.clamp(low, high)
    if acc.numel() and (int(acc.min()) < low or int(acc.max()) > high):
        worst = max(acc.flatten().tolist(), key=abs)
        raise QuantizerError(f"accumulator {worst}: leaves {bits} bits [{low}, {high}]. Use fewer bits or a wider sum.")
    return acc


def int_mm_is_exact() -> bool:
    """Return whether this processor's int8 matrix product is exact, with torch's mkldnn on or off as it is now."""
    return _is_exact_on_pairs(bool(torch._C._get_mkldnn_enabled()))


@functools.cache
def _is_exact_on_pairs(mkldnn: bool) -> bool:  # noqa: FBT001, ARG001 - the key: each of the two has kernels of its own
    """Return whether int8 products are exact for extreme factors, in every combination of four neighbours."""
    # Without VNNI, mkldnn adds 128 to one operand and the products of two neighbours in 16 bits, which saturate.
    # Rows and columns of 16 show every choice of extremes for four neighbours of either operand.
    choice = torch.arange(16)[:, None] >> (torch.arange(320) % 4) & 1
    a = torch.where(choice.bool(), 127, -128).to(torch.int8)
    exact = a.to(torch.int64) @ a.t().to(torch.int64)
    try:  # `_int_mm` passes an operand row by row, or the transpose of one
        return all(torch.equal(torch._int_mm(a, b).to(torch.int64), exact) for b in (a.t().contiguous(), a.t()))
    except (AttributeError, RuntimeError):
        return False


def _run_float(
    run: Callable[..., Tensor], x: Tensor, w: Tensor, kernel: Kernel, length: int, axes: tuple[int, int]
) -> Tensor:
    """Run a float kernel on integers; *chunked*: in slices of *length* along the reduction *axes* of x and w."""
    if kernel == "float64":
        return run(x.to(torch.float64), w.to(torch.float64)).to(torch.int64)
    if kernel == "float32":
        # int32 in between, because torch converts it faster than int64; the sums fit
        return run(x.to(torch.float32), w.to(torch.float32)).to(torch.int32).to(torch.int64)
    parts = []
    for start in range(0, x.shape[axes[0]], length):
        size = min(length, x.shape[axes[0]] - start)
        a, b = x.narrow(axes[0], start, size), w.narrow(axes[1], start, size)
        parts.append(run(a.to(torch.float32), b.to(torch.float32)).to(torch.int64))
    return functools.reduce(torch.add, parts)


def _conv_int_mm(
    x: Tensor, w: Tensor, stride: Sequence[int], padding: Padding, dilation: Sequence[int], out: Sequence[int]
) -> Tensor:
    """Return the convolution as one int8 matrix product, weights times windows, so that channels come first."""
    width = x.shape[-1] + sum(padding[-1])
    if all(s == 1 for s in stride) and run_length(out, width) <= MOST_IN_RUNS * math.prod(out[-2:]):
        product = _int_mm(w.reshape(w.shape[0], -1), runs(x, w.shape[2:], padding, dilation))
        found = from_runs(product, x.shape[0], out, width)
    else:
        product = _int_mm(patch_weights(w), patches(x, w.shape[2:], stride, padding, dilation).contiguous().t())
        found = from_patches(product, x.shape[0], out)
    return found.to(torch.int64, memory_format=torch.contiguous_format)


def _int_mm(a: Tensor, b: Tensor) -> Tensor:
    """Return the int32 product of int8 matrices. *b* is copied unless it, or its transpose, lies row by row.

    torch._int_mm gives wrong numbers for other strides, without an error: rows that overlap, as windows of a view do,
    and a single row with strides (1, 1).
    """
    plain = b.shape[0] > 1 and (b.is_contiguous() or b.t().is_contiguous())
    return torch._int_mm(a.contiguous(), b if plain else b.clone(memory_format=torch.contiguous_format))


def _bound(x: Tensor, w: Tensor, taps: int, kept: list[int], work: int) -> tuple[int, int, int]:
    """Return (bound of any partial sum, max|x|, max|w|), from the dtypes if their bound suffices, else from the data.

    *kept*: the axes of w that are not summed over; *work*: multiplications of the one matrix product, or 0.
    """
    x_max, w_max = _LARGEST.get(x.dtype, 0), _LARGEST.get(w.dtype, 0)
    if not x_max or not w_max or taps * x_max * w_max > FLOAT32_EXACT:
        x_max, w_max = _largest(x), _largest(w)
    bound = taps * x_max * w_max
    # this bound suffices for the fastest kernel that the operands allow
    enough = 1 << 30 if work >= INT_MM_WORK and max(x_max, w_max) <= 128 else FLOAT32_EXACT
    # the float64 sum of |w| below must stay exact, too
    if bound <= enough or taps * w_max >= FLOAT64_EXACT:
        return bound, x_max, w_max
    # sum|w| * max|x| is never above taps * max|w| * max|x|, and often small enough for a faster kernel
    dims = [axis for axis in range(w.dim()) if axis not in kept]
    return int(w.to(torch.float64).abs_().sum(dims).max()) * x_max, x_max, w_max


def _largest(x: Tensor) -> int:
    """Return max|x| of integers; 0 if there are none."""
    if not x.numel():
        return 0
    # in Python integers, because -(-128) wraps in int8
    least, greatest = x.aminmax()
    return max(-int(least), int(greatest))


def _fits_int8(x: Tensor, largest: int) -> bool:
    """Return whether every value of *x* lies in [-128, 127]. A centred code may be +128, which does not fit."""
    return x.dtype == torch.int8 or largest < 128 or (largest == 128 and int(x.max()) < 128)


def _check_groups(channels: int, wanted: int, outputs: int, groups: int) -> None:
    if channels != wanted or outputs % groups:
        raise GraphError(
            f"{channels} input channels in {groups} groups: "
            f"the weights are for {wanted} channels and {outputs} outputs."
        )
