"""2-d transposed convolution."""

from __future__ import annotations

import torch.nn.functional as F
from torch import Tensor

from quantizer.numerics.kernels import conv_transpose
from quantizer.numerics.qparams import Parameters
from quantizer.numerics.quantize import centred
from quantizer.ops import operator

Pair = tuple[int, int]
Four = tuple[int, int, int, int]


@operator("conv_transpose2d")
def reference(
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    *,
    stride: Pair,
    padding: Four,
    output_padding: Pair,
    dilation: Pair,
    groups: int,
) -> Tensor:
    """Spread each element over a window and add; padding crops.

    x [n, c, h, w], weight [o/groups, c, kh, kw], bias [o].
    """
    top, left, bottom, right = padding
    kernel = [d * (k - 1) + 1 for d, k in zip(dilation, weight.shape[2:], strict=True)]
    # the size of the whole sum, before padding crops it
    full = [(size - 1) * s + k for size, s, k in zip(x.shape[2:], stride, kernel, strict=True)]
    # torch has the input channels first; its own padding cannot differ between sides, so that the crop comes later
    y = F.conv_transpose2d(x, weight.transpose(0, 1), None, stride, 0, 0, groups, dilation)
    y = F.pad(y, (0, output_padding[1], 0, output_padding[0]))
    # the bias comes last: elements of the output padding get it, too
    y = y[:, :, top : full[0] + output_padding[0] - bottom, left : full[1] + output_padding[1] - right]
    return y if bias is None else y + bias.reshape(-1, 1, 1)


@operator("conv_transpose2d")
def accumulate(
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    *,
    parameters: Parameters,
    stride: Pair,
    padding: Four,
    output_padding: Pair,
    dilation: Pair,
    groups: int,
) -> Tensor:
    """Sum integer products of centred codes exactly. Output padding adds elements that hold only the bias."""
    top, left, bottom, right = padding
    acc = conv_transpose(
        centred(x, parameters.inputs["x"]),
        centred(weight, parameters.constants["weight"].params).transpose(0, 1).contiguous(),
        stride=stride,
        padding=[(top, bottom), (left, right)],
        output_padding=output_padding,
        dilation=dilation,
        groups=groups,
    )
    return acc if bias is None else acc + bias.reshape(-1, 1, 1)
