"""Normalisations: deviations from a mean divided by a standard deviation, and related operators."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from quantizer.core.errors import UnsupportedError
from quantizer.runtime.onnx.kernels import HALVES, Ours, axis_of, kernel, mapped

STASHES = {1: torch.float32, 10: torch.float16, 11: torch.float64, 16: torch.bfloat16}
"""stash_type -> the format that the first stage computes in."""


def _wide(x: Tensor) -> Tensor:
    """Return floats of 16 bits in float32: there squares do not overflow, and differences keep their digits."""
    return x.float() if x.dtype in HALVES else x


def _along(values: Tensor, rank: int) -> Tensor:
    return values.reshape([1, -1, *[1] * (rank - 2)])


@mapped("BatchNormalization")
def batch_norm(
    x: Tensor,
    scale: Tensor,
    bias: Tensor,
    mean: Tensor,
    var: Tensor,
    *,
    epsilon: float,
    momentum: float,
    training_mode: int = 0,
    spatial: int = 1,
    made: int,
) -> Ours | None:
    """Map to the registry's batch_norm: one factor and one constant for each channel, from the running statistics."""
    if not spatial:
        raise UnsupportedError("BatchNormalization with spatial=0: must normalise whole channels.")
    if (
        training_mode
        or made > 1
        or x.dim() < 2
        or not x.numel()
        or x.dtype in HALVES
        or any(v.dtype != x.dtype for v in (scale, bias, mean, var))
    ):
        return None
    # (x - mean) * factor + bias = x * factor + (bias - mean * factor)
    factor = scale / torch.sqrt(var + epsilon)
    return Ours("batch_norm", {"x": x, "weight": factor, "bias": bias - mean * factor}, {"axis": 1})


@kernel("BatchNormalization")
def batch_norm_in_training(
    x: Tensor,
    scale: Tensor,
    bias: Tensor,
    mean: Tensor,
    var: Tensor,
    *,
    epsilon: float,
    momentum: float,
    training_mode: int = 0,
    spatial: int = 1,
    made: int,
    since: int,
) -> tuple[Tensor, ...]:
    """Normalise by the batch's own statistics and move the running ones towards them; version 14 and later."""
    if since < 14 and made > 1:
        raise UnsupportedError(f"BatchNormalization of version {since} in training: must be of version 14 or later.")
    rank, axes, wide = x.dim(), [0, *range(2, x.dim())], _wide(x)
    running_mean, running_var = mean, var
    if training_mode:
        own_mean, own_var = wide.mean(dim=axes), wide.var(dim=axes, correction=0)
        running_mean = (mean * momentum + own_mean * (1 - momentum)).to(mean.dtype)
        running_var = (var * momentum + own_var * (1 - momentum)).to(var.dtype)
        mean, var = own_mean, own_var  # in the inputs' precision: the running ones may be narrower
    mean, var, scale, bias = (_along(_wide(v), rank) for v in (mean, var, scale, bias))
    y = (wide - mean) / torch.sqrt(var + epsilon) * scale + bias
    return (y.to(x.dtype), running_mean, running_var)[:made]


def _images(x: Tensor, *others: Tensor) -> bool:
    wide = x.is_floating_point() and x.dtype not in HALVES
    return x.dim() == 4 and x.numel() > 0 and wide and all(v.dtype == x.dtype for v in others)


@mapped("InstanceNormalization")
def instance_norm(x: Tensor, scale: Tensor, bias: Tensor, *, epsilon: float) -> Ours | None:
    """Map to the registry's instance_norm, of images."""
    fits = _images(x, scale, bias) and epsilon > 0
    return Ours("instance_norm", {"x": x, "gamma": scale, "beta": bias}, {"epsilon": epsilon}) if fits else None


@kernel("InstanceNormalization")
def instance_norm_of_any_rank(x: Tensor, scale: Tensor, bias: Tensor, *, epsilon: float) -> Tensor:
    """Normalise each channel of each example over its spatial axes."""
    axes, rank = tuple(range(2, x.dim())), x.dim()
    wide = _wide(x)
    deviation = wide - wide.mean(dim=axes, keepdim=True)
    y = deviation / torch.sqrt((deviation * deviation).mean(dim=axes, keepdim=True) + epsilon)
    return (y * _along(_wide(scale), rank) + _along(_wide(bias), rank)).to(x.dtype)


@mapped("LayerNormalization")
def layer_norm(
    x: Tensor, scale: Tensor, bias: Tensor | None = None, *, axis: int, epsilon: float, stash_type: int, made: int
) -> Ours | None:
    """Map to the registry's layer_norm in float32, if mean and deviation are not requested."""
    first = axis_of("LayerNormalization", axis, x.dim())
    plain = x.dtype == torch.float32 and stash_type == 1 and made == 1 and scale.shape == x.shape[first:]
    if not plain or epsilon <= 0 or not x.numel() or (bias is not None and bias.shape != scale.shape):
        return None
    operands = {"x": x, "gamma": scale} | ({} if bias is None else {"beta": bias})
    return Ours("layer_norm", operands, {"axis": first, "epsilon": epsilon})


@kernel("LayerNormalization")
def layer_norm_with_statistics(
    x: Tensor, scale: Tensor, bias: Tensor | None = None, *, axis: int, epsilon: float, stash_type: int, made: int
) -> tuple[Tensor, ...]:
    """Normalise over the axes from *axis* on in the stash's format; also the mean and the inverse deviation."""
    axes = tuple(range(axis_of("LayerNormalization", axis, x.dim()), x.dim()))
    wide = x.to(_stash(stash_type))
    mean = wide.mean(dim=axes, keepdim=True)
    deviation = wide - mean
    inverse = torch.rsqrt((deviation * deviation).mean(dim=axes, keepdim=True) + epsilon)
    y = (deviation * inverse).to(x.dtype) * scale
    return (y if bias is None else y + bias, mean, inverse)[:made]


def _stash(code: int) -> torch.dtype:
    if code not in STASHES:
        raise UnsupportedError(f"stash_type={code}: must be one of {', '.join(map(str, STASHES))}.")
    return STASHES[code]


@mapped("RMSNormalization")
def rms_norm(x: Tensor, scale: Tensor, *, axis: int, epsilon: float, stash_type: int) -> Ours | None:
    """Map to the registry's rms_norm of float32."""
    first = axis_of("RMSNormalization", axis, x.dim())
    fits = x.dtype == torch.float32 and stash_type == 1 and epsilon > 0 and x.numel() and scale.shape == x.shape[first:]
    return Ours("rms_norm", {"x": x, "gamma": scale}, {"axis": first, "epsilon": epsilon}) if fits else None


@kernel("RMSNormalization")
def rms_norm_in_stash(x: Tensor, scale: Tensor, *, axis: int, epsilon: float, stash_type: int) -> Tensor:
    """Divide by the root of the mean square over the axes from *axis* on."""
    axes = tuple(range(axis_of("RMSNormalization", axis, x.dim()), x.dim()))
    wide = x.to(_stash(stash_type))
    root = torch.sqrt((wide * wide).mean(dim=axes, keepdim=True) + epsilon)
    return (wide / root).to(x.dtype) * scale


@mapped("GroupNormalization")
def group_norm(
    x: Tensor, scale: Tensor, bias: Tensor, *, epsilon: float, num_groups: int, stash_type: int = 1, since: int
) -> Ours | None:
    """Map to the registry's group_norm of float32 images; before version 21 the channels of a group share a factor."""
    if not _images(x, scale, bias) or x.dtype != torch.float32 or stash_type != 1 or epsilon <= 0:
        return None
    if num_groups < 1 or x.shape[1] % num_groups:
        return None
    if since < 21:
        scale, bias = (v.repeat_interleave(x.shape[1] // num_groups) for v in (scale, bias))
    return Ours("group_norm", {"x": x, "gamma": scale, "beta": bias}, {"num_groups": num_groups, "epsilon": epsilon})


@kernel("GroupNormalization")
def group_norm_of_any_rank(
    x: Tensor, scale: Tensor, bias: Tensor, *, epsilon: float, num_groups: int, stash_type: int = 1, since: int
) -> Tensor:
    """Normalise groups of channels; there is a scale and a bias for each channel, before version 21 for each group."""
    if num_groups < 1 or x.shape[1] % num_groups:
        raise UnsupportedError(f"num_groups={num_groups}: must divide the {x.shape[1]} channels.")
    wide = x.to(_stash(stash_type)).reshape(x.shape[0], num_groups, -1)
    deviation = wide - wide.mean(dim=-1, keepdim=True)
    y = deviation / torch.sqrt((deviation * deviation).mean(dim=-1, keepdim=True) + epsilon)
    if since < 21:
        scale, bias = (v.repeat_interleave(x.shape[1] // num_groups) for v in (scale, bias))
    return y.reshape(x.shape).to(x.dtype) * _along(scale, x.dim()) + _along(bias, x.dim())


@kernel("LRN")
def local_response(x: Tensor, *, alpha: float, beta: float, bias: float, size: int) -> Tensor:
    """Divide by a power of the sum of squares of *size* neighbouring channels."""
    # an even window has its longer part behind; more than all channels would only add zeros
    before, after = (min(count, x.shape[1]) for count in ((size - 1) // 2, size - 1 - (size - 1) // 2))
    wide = _wide(x)
    square = torch.nn.functional.pad(wide * wide, [*[0] * (2 * (x.dim() - 2)), before, after])
    total = sum((square.narrow(1, i, x.shape[1]) for i in range(before + 1 + after)), torch.zeros_like(wide))
    return (wide / (bias + alpha / size * total) ** beta).to(x.dtype)


@kernel("LpNormalization")
def lp_norm(x: Tensor, *, axis: int, p: int) -> Tensor:
    """Divide by the norm along one axis; a zero vector stays zero."""
    wide = _wide(x)
    norm = wide.abs().sum(dim=axis, keepdim=True) if p == 1 else (wide * wide).sum(dim=axis, keepdim=True).sqrt()
    # the inner where avoids 0 / 0, whose NaN would also reach gradients
    found = torch.where(norm == 0, torch.zeros_like(wide), wide / torch.where(norm == 0, torch.ones_like(norm), norm))
    return found.to(x.dtype)


@kernel("MeanVarianceNormalization")
def mean_variance_normalization(x: Tensor, *, axes: Sequence[int] = (0, 2, 3)) -> Tensor:
    """Return (x - mean) / (sqrt(variance) + 1e-9) over *axes*, as the function body of the standard computes it."""
    along = [axis_of("MeanVarianceNormalization", axis, x.dim()) for axis in axes]
    wide = _wide(x)
    mean = wide.mean(along, keepdim=True)
    spread = ((wide * wide).mean(along, keepdim=True) - mean * mean).sqrt()
    return ((wide - mean) / (spread + 1e-9)).to(x.dtype)
