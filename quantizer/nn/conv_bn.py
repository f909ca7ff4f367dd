"""A convolution into which the following batch normalisation is folded, quantized as one layer."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from quantizer.core.errors import FixError
from quantizer.nn.fixed import Fixed, remembered


class ConvBN_fix(Fixed):
    """Conv2d and BatchNorm2d as the single convolution that hardware runs; its `weight` and `bias` can be configured.

    weight * gamma / sqrt(var + eps) and beta - mean * gamma / sqrt(var + eps) are quantized. In training mean and
    variance are those of the batch (biased, as batch norm divides; unbiased under compat nics_fix, which also leaves
    gradients alone), and the running statistics follow the float convolution.
    """

    fix_data_names = ("weight", "bias")

    def __init__(  # noqa: PLR0913 - the arguments of both layers
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: int | tuple[int, int] = 3,
        stride: int | tuple[int, int] = 1,
        padding: int | tuple[int, int] = 0,
        dilation: int | tuple[int, int] = 1,
        groups: int = 1,
        eps: float = 1e-5,
        momentum: float | None = 0.1,
        affine: bool = True,
        track_running_stats: bool = True,
        *,
        nf_fix_params: Mapping[str, Mapping[str, Any]],
        nf_fix_params_grad: Mapping[str, Mapping[str, Any]] | None = None,
        compat: str | None = None,
    ) -> None:
        gradients = nf_fix_params_grad if compat is None else None
        super().__init__(nf_fix_params=nf_fix_params, nf_fix_params_grad=gradients, compat=compat)
        self.conv = nn.Conv2d(in_channels, out_channels, kernel_size, stride, padding, dilation, groups, bias=False)
        self.bn = nn.BatchNorm2d(out_channels, eps, momentum, affine, track_running_stats)

    def forward(self, inputs: Any) -> Tensor:
        """Return the folded convolution of [n, c, h, w]; a mapping with the key `inputs` as in `FixedParameters`."""
        given = inputs if isinstance(inputs, dict) else None
        x = inputs if given is None else given["inputs"]
        weight, bias = self.folded(x)
        weight, bias = self.fixed_value("weight", weight, given), self.fixed_value("bias", bias, given)
        self._fix_last = remembered([("weight", weight), ("bias", bias)])
        conv = self.conv
        return F.conv2d(x, weight, bias, conv.stride, conv.padding, conv.dilation, conv.groups)

    def folded(self, x: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """Return the float weight and bias; in training, those for the batch *x*, whose statistics are also kept."""
        if self.training or self.bn.running_mean is None or self.bn.running_var is None:
            if x is None:
                raise FixError("ConvBN_fix in training folds the statistics of a batch: call eval() first.")
            made = self.conv(x)
            # runs for its statistics only
            with torch.no_grad():
                self.bn(made)
            mean, var = made.mean((0, 2, 3)), made.var((0, 2, 3), correction=int(self._fix_compat is not None))
        else:
            mean, var = self.bn.running_mean, self.bn.running_var
        gamma = torch.ones_like(mean) if self.bn.weight is None else self.bn.weight
        deviation = torch.sqrt(var + self.bn.eps)
        shift = -mean * gamma / deviation
        weight = self.conv.weight * (gamma / deviation).reshape(-1, 1, 1, 1)
        return weight, shift if self.bn.bias is None else self.bn.bias + shift
