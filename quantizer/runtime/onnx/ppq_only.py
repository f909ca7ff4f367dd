"""The operators of PPQ's table that no opset of ONNX has: from Caffe, mmcv, other runtimes and PPQ's own passes.

They run under their plain names in graphs made in Python, and under DOMAINS in files. Where PPQ leaves a part open, the
definition of the system that the name comes from applies.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import torch
import torch.nn.functional as F
from torch import Tensor

from quantizer.core.errors import UnsupportedError
from quantizer.runtime.onnx.detection import roi_align
from quantizer.runtime.onnx.kernels import Kernel, Ours, axis_of, one_of, sized, whole

DOMAINS = ("mmcv", "ppl", "ppq")
PPQ_KERNELS: dict[str, Kernel] = {}
INTERPOLATIONS, PADDINGS = ("bilinear", "nearest", "bicubic"), ("zeros", "border", "reflection")
Fn = TypeVar("Fn", bound=Callable[..., Any])


def ppq_kernel(name: str) -> Callable[[Fn], Fn]:
    """Register the decorated function as the kernel of the operator of this name."""

    def register(function: Fn) -> Fn:
        PPQ_KERNELS[name] = Kernel(name, function)
        return function

    return register


def ppq_mapped(name: str) -> Callable[[Fn], Fn]:
    """Register the decorated function, which maps the operator of this name to one of the registry."""

    def register(function: Fn) -> Fn:
        PPQ_KERNELS[name].mapped = function
        return function

    return register


def find_ppq_kernel(operation_type: str) -> Kernel | None:
    """Return the kernel of an operator, named plainly or with one of DOMAINS."""
    domain, _, name = operation_type.rpartition("::")
    return PPQ_KERNELS.get(name) if domain in ("", *DOMAINS) else None


@ppq_kernel("AdaptiveAvgPool2d")
def adaptive_avg_pool(x: Tensor, given: Tensor | None = None, *, output_size: Sequence[int] = ()) -> Tensor:
    """Return the means of windows that divide the image into *output_size*, by torch's rule."""
    size = whole(given) if given is not None else list(output_size)
    if x.dim() not in (3, 4) or len(size) != 2 or min(size) < 1:
        raise UnsupportedError(
            f"AdaptiveAvgPool2d of {list(x.shape)} to {size}: must be images, two sizes of at least 1."
        )
    rows, columns = sized("AdaptiveAvgPool2d", size, x.dtype)
    return F.adaptive_avg_pool2d(x, (rows, columns))


@ppq_kernel("CaffeArgMax")
def caffe_arg_max(
    x: Tensor, *, axis: int | None = None, top_k: int = 1, out_max_val: int = 0, made: int
) -> list[Tensor]:
    """Return the largest values along an axis and their places. Of two results, values come first, as in PPQ.

    A single result is Caffe's: indices as floats, or with out_max_val values. Without an axis, each whole example is
    searched, and out_max_val gives [indices, values].
    """
    if axis is None:
        values, places = x.flatten(1).topk(top_k, dim=1)
        pair = torch.stack([places.to(x.dtype), values], dim=1) if out_max_val else places.to(x.dtype).unsqueeze(1)
        single = pair
    else:
        values, places = x.topk(top_k, dim=axis_of("CaffeArgMax", axis, x.dim()))
        single = values if out_max_val else places.to(x.dtype)
    return [single] if made == 1 else [values, places]


@ppq_kernel("ChannelShuffle")
def channel_shuffle_of_any_rank(x: Tensor, *, groups: int) -> Tensor:
    """Interleave the channels of all groups."""
    if x.dim() < 2 or groups < 1 or x.shape[1] % groups:
        raise UnsupportedError(f"ChannelShuffle of {list(x.shape)}: groups={groups} must divide the channels.")
    return x.reshape(x.shape[0], groups, -1, *x.shape[2:]).transpose(1, 2).flatten(1, 2)


@ppq_mapped("ChannelShuffle")
def channel_shuffle(x: Tensor, *, groups: int) -> Ours | None:
    """Map to the registry's channel_shuffle, of images."""
    fits = x.dim() == 4 and x.is_floating_point() and x.numel() and groups >= 1 and x.shape[1] % groups == 0
    return Ours("channel_shuffle", {"x": x}, {"groups": groups}) if fits else None


@ppq_kernel("Interp")
def interp(
    x: Tensor,
    *,
    height: int = 0,
    width: int = 0,
    zoom_factor: int = 1,
    shrink_factor: int = 1,
    pad_beg: int = 0,
    pad_end: int = 0,
    mode: str = "linear",
    align_corners: int = 1,
) -> Tensor:
    """Run Caffe's Interp: crop images by negative pads, then resize them; corners are aligned by default."""
    if x.dim() != 4 or max(pad_beg, pad_end) > 0 or min(zoom_factor, shrink_factor) < 1:
        raise UnsupportedError(f"Interp of {list(x.shape)}: must be images, pads 0 or less, factors 1 or more.")
    one_of("Interp", "mode", mode, ("linear", "bilinear", "nearest"))
    # pads are 0 or less: they crop
    part = x[:, :, -pad_beg : x.shape[2] + pad_end, -pad_beg : x.shape[3] + pad_end]
    size = list(part.shape[2:])
    if height or width:
        size = [height, width]
    else:
        # Caffe's formulas: corners stay corners when shrunk and when enlarged
        size = [(n - 1) // shrink_factor + 1 for n in size]
        size = [n + (n - 1) * (zoom_factor - 1) for n in size]
    if not part.numel() or min(size) < 1:
        raise UnsupportedError(f"Interp of {list(part.shape)} to {size}: every size must be at least 1.")
    sized("Interp", (*part.shape[:2], *size), x.dtype)
    if mode == "nearest":
        return F.interpolate(part, size=size, mode="nearest")
    return F.interpolate(part, size=size, mode="bilinear", align_corners=bool(align_corners))


@ppq_kernel("LayerNorm")
def layer_norm(x: Tensor, weight: Tensor, bias: Tensor | None = None, *, epsilon: float = 1e-5) -> Tensor:
    """Normalise over the last axes, as many as the weight has."""
    return F.layer_norm(x, weight.shape, weight, bias, epsilon)


@ppq_kernel("skipLayerNormPlugin")
def skip_layer_norm(
    x: Tensor,
    skip: Tensor,
    weight: Tensor,
    shift: Tensor | None = None,
    bias: Tensor | None = None,
    *,
    epsilon: float = 1e-5,
) -> Tensor:
    """Normalise the sum of both operands and an optional bias over the last axes, as many as the weight has."""
    total = x + skip if bias is None else x + skip + bias
    return F.layer_norm(total, weight.shape, weight, shift, epsilon)


@ppq_kernel("MMCVRoiAlign")
def mmcv_roi_align(
    x: Tensor,
    rois: Tensor,
    *,
    output_height: int,
    output_width: int,
    spatial_scale: float = 1.0,
    sampling_ratio: int = 0,
    mode: str = "avg",
    aligned: int = 1,
) -> Tensor:
    """Run ONNX's RoiAlign. The first column of a region is its example; aligned: coordinates name pixel centres."""
    if rois.dim() != 2 or rois.shape[1] != 5:
        raise UnsupportedError(f"MMCVRoiAlign: regions of shape {list(rois.shape)}: must be [n, 5].")
    return roi_align(
        x,
        rois[:, 1:],
        rois[:, 0].long(),
        mode=mode,
        output_height=output_height,
        output_width=output_width,
        sampling_ratio=sampling_ratio,
        spatial_scale=spatial_scale,
        coordinate_transformation_mode="half_pixel" if aligned else "output_half_pixel",
    )


@ppq_kernel("MultiHeadAttention")
def multi_head_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    q_weight: Tensor,
    q_bias: Tensor,
    k_weight: Tensor,
    k_bias: Tensor,
    v_weight: Tensor,
    v_bias: Tensor,
    out_weight: Tensor,
    out_bias: Tensor,
    *,
    num_heads: int,
) -> Tensor:
    """Return the softmax of scaled products of projected queries and keys, times projected values."""
    size = q_weight.shape[0]
    if query.dim() != 3 or num_heads < 1 or size % num_heads:
        raise UnsupportedError(
            f"MultiHeadAttention of {list(query.shape)} with {num_heads} heads: must divide size {size}."
        )
    projected = ((query, q_weight, q_bias), (key, k_weight, k_bias), (value, v_weight, v_bias))
    q, k, v = (F.linear(x, w, b).unflatten(2, (num_heads, -1)).transpose(1, 2) for x, w, b in projected)
    # the shares have the shape [batch, heads, length, length]
    share = torch.softmax(q @ k.transpose(2, 3) * (size // num_heads) ** -0.5, dim=-1)
    return F.linear((share @ v).transpose(1, 2).flatten(2), out_weight, out_bias)


@ppq_kernel("PPQBiasFusedMatMul")
def bias_fused_matmul(a: Tensor, b: Tensor, bias: Tensor | None = None) -> Tensor:
    """Multiply matrices, then add a constant."""
    return torch.matmul(a, b) if bias is None else torch.matmul(a, b) + bias


@ppq_kernel("PPQDeviceSwitch")
def device_switch(x: Tensor) -> Tensor:
    """Return the operand, because there is only one device."""
    return x


@ppq_kernel("Parameter")
def parameter(x: Tensor, *, m: int = -1, n: int = -1) -> Tensor:
    """Return the operand as a matrix."""
    if (m, n) == (-1, -1) or (m > 0 and x.numel() % m) or (n > 0 and x.numel() % n):
        raise UnsupportedError(f"Parameter: {list(x.shape)} as {m} x {n}: name at least one size that divides.")
    return x.reshape(m, n)


@ppq_kernel("Scale")
def scale(x: Tensor, factor: Tensor, bias: Tensor | None = None, *, axis: int = 1, bias_term: int = 0) -> Tensor:
    """Multiply x by factors along the axes from *axis* on, then add optional constants."""
    del bias_term
    first = axis_of("Scale", axis, x.dim())
    if first + factor.dim() > x.dim():
        raise UnsupportedError(
            f"Scale: factors of shape {list(factor.shape)} from axis {axis} of {x.dim()} on: must fit."
        )
    along = [*factor.shape, *[1] * (x.dim() - first - factor.dim())]
    y = x * factor.reshape(along)
    return y if bias is None else y + bias.reshape(along)


@ppq_kernel("grid_sampler")
def grid_sampler(
    x: Tensor, grid: Tensor, *, interpolation_mode: int = 0, padding_mode: int = 0, align_corners: int = 0
) -> Tensor:
    """Sample x at positions from -1 to 1; modes are numbered as in torch's grid_sample."""
    if not 0 <= interpolation_mode < len(INTERPOLATIONS) or not 0 <= padding_mode < len(PADDINGS):
        raise UnsupportedError(
            f"grid_sampler: interpolation_mode={interpolation_mode}, padding_mode={padding_mode}: must be 0, 1 or 2."
        )
    return F.grid_sample(
        x, grid, INTERPOLATIONS[interpolation_mode], PADDINGS[padding_mode], align_corners=bool(align_corners)
    )
