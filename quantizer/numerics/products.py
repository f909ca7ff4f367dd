"""Exact sums of products of activation codes and weight codes. Convolutions of every rank use them."""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor

from quantizer.numerics.kernels import conv
from quantizer.numerics.qparams import Parameters
from quantizer.numerics.quantize import centred


def convolved(
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    parameters: Parameters,
    *,
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    groups: int,
) -> Tensor:
    """Return the int64 convolution of codes (N, C, ...) *x* with (O, C/groups, kernel...) *weight*, plus *bias* (O).

    *padding*: all before, then all after the spatial axes. It has the code of the zero point, 0 after centring.
    """
    rank = weight.dim() - 2
    acc = conv(
        centred(x, parameters.inputs["x"]),
        centred(weight, parameters.constants["weight"].params),
        stride=stride,
        padding=list(zip(padding[:rank], padding[rank:], strict=True)),
        dilation=dilation,
        groups=groups,
    )
    # the bias lies along the channels of [N, O, out...]
    return acc if bias is None else acc + bias.reshape(-1, *(1,) * rank)
