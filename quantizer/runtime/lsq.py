"""Learned step size: a delegate whose scale is trained (Esser et al., arXiv 1902.08153)."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd import Function

from quantizer.numerics.rounding import round_tensor
from quantizer.runtime.tensor_config import QuantizationProperty, QuantizationStates, TensorQuantizationConfig

P = QuantizationProperty


class LearnedStep:
    """Replaces the quantization of one configuration by one with a trainable scale.

    Register it with `TorchExecutor.register_quantize_delegate(config, delegate)`, train `delegate.scale`, then
    `finalize`. Its step is the magnitude of `scale`, so that training cannot change its sign.
    """

    def __init__(self, config: TensorQuantizationConfig) -> None:
        """Take the calibrated scale of *config*; ValueError if it is inactive, shares its scale, or has no step."""
        trained = P.LINEAR in config.policy and not config.policy & (P.POWER_OF_2 | P.DYNAMIC)
        if config.state != QuantizationStates.ACTIVATED or config.master is not None or not trained:
            raise ValueError(
                "a learned step needs an activated configuration of its own, linear, neither power-of-two nor dynamic: "
                f"this one is {config.policy!r}, {config.state.name.lower()}."
            )
        if config.scale is None:
            raise ValueError("a learned step starts from a calibrated scale: calibrate first.")
        self.config = config
        self.scale = nn.Parameter(config.scale.clone().float())

    def __call__(self, tensor: Tensor, config: TensorQuantizationConfig) -> Tensor:
        """Return *tensor*, quantized with the current scale."""
        found: Any = _Step.apply(tensor, self.scale, config)  # type: ignore[no-untyped-call]
        assert isinstance(found, Tensor)
        return found

    def finalize(self) -> None:
        """Write the trained scale to the configuration; ValueError if it is 0 or not finite."""
        scale = self.scale.detach().abs()
        if not bool((torch.isfinite(scale) & (scale > 0)).all()):
            raise ValueError(f"the trained scale is {scale.tolist()}: must be above 0 and finite.")
        self.config.scale = scale


class _Step(Function):
    """Forward: scale * (code - offset).

    Backward: the gradient of values passes where the code is not clipped; `backward` says what the scale's gradient is.
    """

    @staticmethod
    def forward(ctx: Any, values: Tensor, scale: Tensor, config: TensorQuantizationConfig) -> Tensor:
        """Return *values* quantized and dequantized again; codes outside [quant_min, quant_max] saturate."""
        assert config.offset is not None
        shape = [-1 if i == config.channel_axis else 1 for i in range(values.dim())] if scale.dim() else []
        step, zero = scale.abs().reshape(shape), config.offset.reshape(shape).to(values.dtype)
        # in float32 as in inference; rounded in float64, which holds every float32 quotient
        raw = values / step
        codes = round_tensor(raw.double(), config.rounding).to(values.dtype) + zero
        inside = (codes >= config.quant_min) & (codes <= config.quant_max)
        codes = codes.clamp(config.quant_min, config.quant_max)
        ctx.save_for_backward(inside, codes - zero, raw, scale)
        ctx.quant_max, ctx.axis = config.quant_max, config.channel_axis or 0
        return (codes - zero) * step

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        """Return the gradients of values and scale.

        The scale's gradient adds, over the elements that share the scale, code - offset - x / scale where the code is
        not clipped, else code - offset. It is divided by the root of their number times the largest code.
        """
        inside, codes, raw, scale = ctx.saved_tensors
        # a clipped code does not move with the scale; a rounded one does, by its rounding error
        moved = gradient * torch.where(inside, codes - raw, codes)
        count = moved.numel() // scale.numel()
        total = moved.sum() if not scale.dim() else moved.movedim(ctx.axis, 0).reshape(len(scale), -1).sum(1)
        # the step is the magnitude of the scale, so the gradient has the scale's sign
        along = total.reshape(scale.shape) / math.sqrt(count * ctx.quant_max) * scale.sign()
        return torch.where(inside, gradient, 0.0), along, None
