"""How one tensor is quantized: PPQ's terms, this package's numerics.

PPQ's offset is the zero point; `clamp(round(x / scale) + offset)` are the codes, and `scale * (code - offset)` their
values.
"""

from __future__ import annotations

import enum
import math
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor
from torch.autograd import Function

from quantizer.core.dtypes import integer
from quantizer.core.errors import GraphError
from quantizer.core.platform_settings import Quantizer
from quantizer.core.rounding_modes import RoundingMode
from quantizer.numerics.qparams import QParams
from quantizer.numerics.quantize import dequantize, quantize

SMALLEST_SCALE = 1e-8
"""The scale of a tensor that holds only zeros. Source: PPQ's minmax_to_scale_offset."""
FLOAT8 = {(4, 3): torch.float8_e4m3fn, (5, 2): torch.float8_e5m2}
"""(bits of the exponent, bits of the mantissa) -> the format."""


class QuantizationProperty(enum.IntFlag):
    """The properties of a policy."""

    PER_TENSOR = 1
    PER_CHANNEL = 2
    LINEAR = 4
    FLOATING = 8
    SYMMETRICAL = 0x10
    ASYMMETRICAL = 0x20
    POWER_OF_2 = 0x40
    DYNAMIC = 0x80


P = QuantizationProperty
_LINEAR = [P.LINEAR | extra for extra in (P(0), P.POWER_OF_2, P.DYNAMIC, P.DYNAMIC | P.POWER_OF_2)]
POLICIES = frozenset(
    [
        grain | sign | kind
        for grain in (P.PER_TENSOR, P.PER_CHANNEL)
        for sign in (P.SYMMETRICAL, P.ASYMMETRICAL)
        for kind in _LINEAR
    ]
    + [grain | P.SYMMETRICAL | P.FLOATING | P.POWER_OF_2 for grain in (P.PER_TENSOR, P.PER_CHANNEL)]
)
"""The 18 combinations that are meaningful."""


class QuantizationStates(enum.Enum):
    """The treatment of a tensor where a configuration applies."""

    INITIAL = 1
    BAKED = 2
    OVERLAPPED = 3
    ACTIVATED = 4
    PASSIVE = 5
    PASSIVE_INIT = 6
    PASSIVE_BAKED = 7
    FP32 = 8


ACTIVE = (QuantizationStates.ACTIVATED, QuantizationStates.PASSIVE)


# a code and a float32 scale have at most 16 + 24 significant bits: their product is rounded once
WIDEST_STEP = 16
"""For codes of up to this many bits, float32 holds the product of a code and the scale after one rounding."""
Stamp = tuple[int, int, int, int, int]


@dataclass(frozen=True)
class Step:
    """What float32 quantization needs: a scale shaped for one rank, and code limits less the zero point."""

    stamp: Stamp
    made_of: tuple[Tensor | None, Tensor | None]
    """Kept so that no other tensor can have the place in memory that the stamp names."""
    scale: Tensor
    low: float
    """A Python number, not a tensor, because torch clamps ten times as fast between numbers."""
    high: float
    nothing: float
    """What NaN becomes: code 0 minus the zero point."""

    def quantize(self, values: Tensor) -> Tensor:
        """Return the values of the codes of float32 *values*."""
        # in place from here on: the quotient is a new tensor that nothing else holds
        steps = (values / self.scale).round_()
        return steps.nan_to_num_(self.nothing, math.inf, -math.inf).clamp_(self.low, self.high).mul_(self.scale)


@dataclass(eq=False)
class TensorQuantizationConfig:
    """Policy, codes and scale of one tensor; two configurations are the same only if they are one object."""

    policy: QuantizationProperty
    rounding: RoundingMode = "half_even"
    num_of_bits: int = 8
    quant_min: int = -128
    quant_max: int = 127
    exponent_bits: int = 0
    scale: Tensor | None = None
    offset: Tensor | None = None
    observer_algorithm: str = "minmax"
    state: QuantizationStates = QuantizationStates.INITIAL
    channel_axis: int | None = None
    master: TensorQuantizationConfig | None = field(default=None, repr=False)
    """The configuration whose scale and offset are used instead of its own."""
    _step: Step | None = field(default=None, init=False, repr=False)

    def __post_init__(self) -> None:
        if self.policy not in POLICIES:
            raise ValueError(f"policy {self.policy!r}: must be one of the {len(POLICIES)} combinations of POLICIES.")
        signed = self.quant_min < 0
        span = (
            (-(1 << (self.num_of_bits - 1)), (1 << (self.num_of_bits - 1)) - 1)
            if signed
            else (0, (1 << self.num_of_bits) - 1)
        )
        if not 2 <= self.num_of_bits <= 32 or not span[0] <= self.quant_min < self.quant_max <= span[1]:
            raise ValueError(
                f"codes [{self.quant_min}, {self.quant_max}] of {self.num_of_bits} bits: must lie in {list(span)}."
            )
        if (self.channel_axis is not None) != (P.PER_CHANNEL in self.policy):
            raise ValueError(
                f"channel_axis={self.channel_axis}: a policy per channel needs one, a policy per tensor has none."
            )
        if P.FLOATING in self.policy and (self.exponent_bits, self.mantissa_bits) not in FLOAT8:
            raise ValueError(
                f"exponent_bits={self.exponent_bits} of {self.num_of_bits} bits: must be 4 or 5, of 8 bits."
            )

    @property
    def mantissa_bits(self) -> int:
        """Bits that are neither sign nor exponent."""
        return self.num_of_bits - self.exponent_bits - 1

    @property
    def is_active(self) -> bool:
        """Whether a tensor with this configuration is quantized."""
        return self.state in ACTIVE

    @property
    def root(self) -> TensorQuantizationConfig:
        """The configuration whose scale is used."""
        return self if self.master is None else self.master.root

    @property
    def params(self) -> QParams:
        """Scale and offset as the package's parameters; GraphError before calibration."""
        root = self.root
        if root.scale is None or root.offset is None:
            raise GraphError("a tensor is quantized before its scale is known: calibrate the graph first.")
        dtype = integer(self.num_of_bits, signed=self.quant_min < 0)
        return QParams(
            dtype, root.scale.double(), root.offset.long(), self.quant_min, self.quant_max, root.channel_axis
        )

    def calibrate(self, low: Tensor, high: Tensor) -> None:
        """Set scale and offset from a range, widened to contain 0; a power-of-two scale is rounded up first.

        Source: PPQ's minmax_to_scale_offset, but the offset takes the first code into account.
        """
        if P.FLOATING in self.policy:
            largest = torch.maximum(low.abs(), high.abs()).double() / torch.finfo(self.float8).max
            # a power of two, so that scaling itself does not round
            self.scale = torch.exp2(torch.ceil(torch.log2(largest.clamp(min=SMALLEST_SCALE)))).float()
            self.offset = torch.zeros_like(self.scale, dtype=torch.int64)
            return
        # 0 must have a code
        low, high = low.double().clamp(max=0), high.double().clamp(min=0)
        if not bool(torch.isfinite(low + high).all()):
            raise GraphError("a tensor that is not finite cannot be calibrated.")
        steps = self.quant_max - self.quant_min
        if P.SYMMETRICAL in self.policy:
            # both signs must fit, so the shorter side counts
            reach = min(-self.quant_min, self.quant_max) if self.quant_min < 0 else steps
            scale = torch.maximum(-low, high) / reach
        else:
            scale = (high - low) / steps
        scale = scale.clamp(min=SMALLEST_SCALE)
        if P.POWER_OF_2 in self.policy:
            scale = torch.exp2(torch.ceil(torch.log2(scale)))
        self.scale = scale.float()
        self.offset = torch.zeros_like(scale, dtype=torch.int64)
        if P.ASYMMETRICAL in self.policy:
            # with the float32 scale that is used, not the float64 one before it was rounded
            zero = self.quant_min + torch.round(-low / self.scale.double())
            self.offset = zero.clamp(self.quant_min, self.quant_max).long()

    @property
    def float8(self) -> torch.dtype:
        """The format of a floating policy."""
        return FLOAT8[self.exponent_bits, self.mantissa_bits]

    def codes(self, values: Tensor) -> Tensor:
        """Return the codes of *values*, int64."""
        return quantize(values, self.params, self.quantizer)

    @property
    def quantizer(self) -> Quantizer:
        """How a value becomes a code: divided in float32, the zero point added after rounding."""
        return Quantizer(operation="divide_float32", rounding=self.rounding, zero_point="after")

    def quantize(self, values: Tensor) -> Tensor:
        """Return *values* rounded to codes, in the same type. The gradient passes where values are not clipped."""
        step = self._step
        # the cached step has no gradient and only holds float32
        exact = step is None or values.dtype != torch.float32 or (values.requires_grad and torch.is_grad_enabled())
        if not exact and step is not None and step.stamp == self.stamp(values.dim()):
            return step.quantize(values)
        if P.DYNAMIC in self.policy:
            axes = tuple(i for i in range(values.dim()) if P.PER_TENSOR in self.policy or i != self._axis(values))
            own = TensorQuantizationConfig(
                self.policy & ~P.DYNAMIC,
                self.rounding,
                self.num_of_bits,
                self.quant_min,
                self.quant_max,
                channel_axis=self.channel_axis,
            )
            own.calibrate(values.detach().amin(dim=axes), values.detach().amax(dim=axes))
            return own.quantize(values)
        if not (torch.is_grad_enabled() and values.requires_grad):
            step = self._float32_step(values)
            if step is not None:
                return step.quantize(values)
        found: Any = _StraightThrough.apply(values, self)  # type: ignore[no-untyped-call]
        assert isinstance(found, Tensor)
        return found

    def stamp(self, rank: int) -> Stamp:
        """Return a value that changes when the scale or offset in use changes."""
        root = self if self.master is None else self.root
        scale, offset = root.scale, root.offset
        first = -1 if scale is None else scale._version
        # torch counts in-place changes of a tensor in _version
        return id(scale), id(offset), first, -1 if offset is None else offset._version, rank

    def _float32_step(self, values: Tensor) -> Step | None:
        """Return how to quantize in float32 to the same values, None if another way is needed."""
        if P.FLOATING in self.policy or self.num_of_bits > WIDEST_STEP or self.rounding != "half_even":
            return None
        if values.dtype != torch.float32:
            return None
        stamp, params, rank = self.stamp(values.dim()), self.params, values.dim()
        # the limits would differ from channel to channel, and torch clamps fast only between numbers
        if params.zero_point.dim() and bool(params.zero_point.any()):
            return None
        scale, zero = params.along(params.scale, rank).float(), int(params.zero_point.reshape(-1)[0])
        # codes less the zero point: clamping before or after subtracting it gives the same
        low, high, code = params.qmin - zero, params.qmax - zero, min(max(0, params.qmin), params.qmax) - zero
        self._step = Step(stamp, (self.root.scale, self.root.offset), scale, float(low), float(high), float(code))
        return self._step

    def _axis(self, values: Tensor) -> int:
        assert self.channel_axis is not None
        return self.channel_axis % values.dim()


class _StraightThrough(Function):
    """Forward: the values of the codes. Backward: the gradient where the code is not clipped, zero elsewhere."""

    @staticmethod
    def forward(ctx: Any, values: Tensor, config: TensorQuantizationConfig) -> Tensor:
        """Quantize, never in place."""
        if P.FLOATING in config.policy:
            root = config.root
            assert root.scale is not None
            shape = [-1 if i == root.channel_axis else 1 for i in range(values.dim())] if root.scale.dim() else []
            scale, largest = root.scale.reshape(shape), torch.finfo(config.float8).max
            ctx.save_for_backward((values / scale).abs() <= largest)
            return ((values / scale).clamp(-largest, largest).to(config.float8).to(values.dtype) * scale).to(
                values.dtype
            )
        params = config.params
        if values.requires_grad:
            ratio = values.double() / params.along(params.scale, values.dim()) + params.along(
                params.zero_point, values.dim()
            )
            # half a step beyond the ends still rounds to the last code
            ctx.save_for_backward((ratio >= params.qmin - 0.5) & (ratio <= params.qmax + 0.5))
        return dequantize(config.codes(values), params).to(values.dtype)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        """Return the masked gradient."""
        (inside,) = ctx.saved_tensors
        return torch.where(inside, gradient, 0.0), None


@dataclass(eq=False)
class OperationQuantizationConfig:
    """A configuration for each operand and each result of an operation."""

    input_quantization_config: list[TensorQuantizationConfig]
    output_quantization_config: list[TensorQuantizationConfig]


def create_default_quant_config(
    *,
    num_of_bits: int = 8,
    quant_min: int | None = None,
    quant_max: int | None = None,
    policy: QuantizationProperty = P.PER_TENSOR | P.LINEAR | P.SYMMETRICAL,
    rounding: RoundingMode = "half_even",
    observer_algorithm: str = "minmax",
    channel_axis: int | None = None,
    exponent_bits: int = 0,
) -> TensorQuantizationConfig:
    """Return a configuration that is still to be calibrated; by default with signed codes of full range."""
    return TensorQuantizationConfig(
        policy,
        rounding,
        num_of_bits,
        -(1 << (num_of_bits - 1)) if quant_min is None else quant_min,
        (1 << (num_of_bits - 1)) - 1 if quant_max is None else quant_max,
        exponent_bits,
        observer_algorithm=observer_algorithm,
        channel_axis=channel_axis,
    )
