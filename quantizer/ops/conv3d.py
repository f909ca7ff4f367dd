"""3-d convolution."""

from __future__ import annotations

import torch.nn.functional as F  # noqa: N812 - the name that torch users know
from torch import Tensor

from quantizer.numerics.kernels import conv
from quantizer.numerics.qparams import Parameters
from quantizer.numerics.quantize import centred
from quantizer.numerics.windows import torch_padding
from quantizer.ops import operator

Sizes = tuple[int, ...]


@operator("conv3d")
def reference(
    x: Tensor, weight: Tensor, bias: Tensor | None = None, *,
    stride: Sizes, padding: Sizes, dilation: Sizes, groups: int,
) -> Tensor:  # fmt: skip
    """Sum products over windows: x [n, c, d, h, w], weight [o, c/groups, kd, kh, kw], bias [o]."""
    return F.conv3d(F.pad(x, torch_padding(padding)), weight, bias, stride, 0, dilation, groups)


@operator("conv3d")
def accumulate(
    x: Tensor, weight: Tensor, bias: Tensor | None = None, *, parameters: Parameters,
    stride: Sizes, padding: Sizes, dilation: Sizes, groups: int,
) -> Tensor:  # fmt: skip
    """Sum integer products of centred codes exactly; padding is the zero point, so zero after centring."""
    acc = conv(
        centred(x, parameters.inputs["x"]), centred(weight, parameters.constants["weight"].params),
        stride=stride, padding=list(zip(padding[:3], padding[3:], strict=True)), dilation=dilation, groups=groups,
    )  # fmt: skip
    return acc if bias is None else acc + bias.reshape(-1, 1, 1, 1)
