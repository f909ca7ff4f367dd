"""2-d convolution."""

from __future__ import annotations

import torch.nn.functional as F  # noqa: N812 - the name that torch users know
from torch import Tensor

from quantizer.numerics.finish import finish
from quantizer.numerics.kernels import conv
from quantizer.numerics.qparams import Parameters
from quantizer.numerics.quantize import centred
from quantizer.ops import operator

Pair = tuple[int, int]


@operator("conv2d")
def reference(
    x: Tensor, weight: Tensor, bias: Tensor | None = None, *,
    stride: Pair, padding: tuple[int, int, int, int], dilation: Pair, groups: int,
) -> Tensor:  # fmt: skip
    """Sum products over windows: x [n, c, h, w], weight [o, c/groups, kh, kw], bias [o]."""
    top, left, bottom, right = padding
    return F.conv2d(F.pad(x, (left, right, top, bottom)), weight, bias, stride, 0, dilation, groups)


@operator("conv2d")
def accumulate(
    x: Tensor, weight: Tensor, bias: Tensor | None = None, *, parameters: Parameters,
    stride: Pair, padding: tuple[int, int, int, int], dilation: Pair, groups: int,
) -> Tensor:  # fmt: skip
    """Sum integer products of centred codes exactly; padding is the zero point, so zero after centring."""
    top, left, bottom, right = padding
    acc = conv(
        centred(x, parameters.inputs["x"]), centred(weight, parameters.constants["weight"].params),
        stride=stride, padding=[(top, bottom), (left, right)], dilation=dilation, groups=groups,
    )  # fmt: skip
    return acc if bias is None else acc + bias.reshape(-1, 1, 1)


@operator("conv2d")
def quantized(
    x: Tensor, weight: Tensor, bias: Tensor | None = None, *, parameters: Parameters,
    stride: Pair, padding: tuple[int, int, int, int], dilation: Pair, groups: int,
) -> Tensor:  # fmt: skip
    """Accumulate exactly, then bring the sum to output codes with one multiplier per channel."""
    acc = accumulate(
        x, weight, bias, parameters=parameters, stride=stride, padding=padding, dilation=dilation, groups=groups
    )
    return finish(acc, parameters, channel_axis=1)
