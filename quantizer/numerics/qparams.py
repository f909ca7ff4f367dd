"""What a quantize rule provides to an integer forward: parameters, codes of constants, multipliers, tables."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Literal

from torch import Tensor

from quantizer.core.dtypes import DType
from quantizer.core.errors import GraphError
from quantizer.core.platforms import Platform, Variant


@dataclass(frozen=True)
class QParams:
    """`real = scale * (code - zero_point)`, per tensor (0-d) or per slice along `axis` (1-d)."""

    dtype: DType
    scale: Tensor
    """float64, positive and finite."""
    zero_point: Tensor
    """int64, the shape of `scale`."""
    qmin: int
    qmax: int
    axis: int | None = None
    steps: Tensor | None = None
    """float32 codes per unit, where a platform's arithmetic multiplies by that number instead of dividing by scale."""

    def __post_init__(self) -> None:
        if not _all_positive(self.scale):
            raise GraphError(f"scale {self.scale.tolist()}: must be positive and finite.")
        if not self.dtype.min <= self.qmin <= self.qmax <= self.dtype.max:
            raise GraphError(
                f"codes [{self.qmin}, {self.qmax}]: must lie in {self.dtype} [{self.dtype.min}, {self.dtype.max}]."
            )

    @property
    def bits(self) -> int:
        """Bits of the codes, which the format may have more of: 10 in a format of 12."""
        return self.qmax.bit_length() + (self.dtype.kind == "int")

    @property
    def first(self) -> int:
        """The smallest code of so many bits, restricted or not."""
        return -(1 << (self.bits - 1)) if self.dtype.kind == "int" else 0

    def copied(self) -> QParams:
        """Return the same numbers in tensors of their own."""
        steps = None if self.steps is None else self.steps.clone()
        return replace(self, scale=self.scale.clone(), zero_point=self.zero_point.clone(), steps=steps)

    def along(self, values: Tensor, rank: int) -> Tensor:
        """Return per-axis *values* shaped to broadcast against a tensor of *rank* axes."""
        if self.axis is None or values.dim() == 0:
            return values
        return values.reshape([-1 if i == self.axis % rank else 1 for i in range(rank)])

    def repeated(self, count: int) -> QParams:
        """Return per-axis parameters repeated as a whole until there are *count* (groups that share weights' scales)."""
        own = self.scale.numel()
        if self.axis is None or self.scale.dim() == 0 or own == count or not count or count % own:
            return self
        steps = None if self.steps is None else self.steps.repeat(count // own)
        scale, zero = self.scale.repeat(count // own), self.zero_point.repeat(count // own)
        return replace(self, scale=scale, zero_point=zero, steps=steps)

    def sliced(self, start: int, stop: int) -> QParams:
        """Return the parameters of the slices [start, stop) along `axis`; per-tensor ones stay as they are."""
        if self.axis is None or self.scale.dim() == 0:
            return self
        steps = None if self.steps is None else self.steps[start:stop]
        return replace(self, scale=self.scale[start:stop], zero_point=self.zero_point[start:stop], steps=steps)


def _all_positive(scale: Tensor) -> bool:
    """Return whether every scale is positive and finite."""
    if scale.dim() == 0:
        return 0.0 < float(scale) < math.inf
    return bool(((scale > 0) & (scale < math.inf)).all())


@dataclass(frozen=True)
class Constant:
    """The codes of a weight or a bias (int64) and what they mean."""

    codes: Tensor
    params: QParams

    @property
    def sums(self) -> Tensor:
        """Sum of the codes of each slice along the first axis."""
        return self.codes.reshape(len(self.codes), -1).sum(1)

    @property
    def centred_sums(self) -> Tensor:
        """Sum of code - zero_point of each slice along the first axis, for parameters per tensor or of these slices."""
        return self.sums - self.params.zero_point * (self.codes.numel() // len(self.codes))


@dataclass(frozen=True)
class Rescale:
    """The numbers that bring an accumulator to output codes: `sum(factor * term) * mantissa * 2**-shift / divisor`."""

    variant: Variant
    mantissa: Tensor
    """float64: an integer of the declared bits, a float32 number, a float64 ratio (half_away), or an exact product of scales; 0-d or per channel."""
    shift: Tensor
    """int64, the shape of `mantissa`."""
    divisor: float = 1.0
    """The output scale, where the variant divides by it exactly."""
    factors: Mapping[str, float] = field(default_factory=dict)
    """Input -> what its centred codes are multiplied by before they are added, in the order of the operation; 1 where not named."""
    axis: int | None = None
    """The axis of the sum along which numbers per channel lie."""
    operands: Variant | None = None
    """How each `factor * term` is rounded before terms are added; None: not at all, or as `variant` has it."""
    pairs: Mapping[str, tuple[int, int]] = field(default_factory=dict)
    """Input -> the multiplier and shift that its factor was made of, where inputs have one each."""

    def sliced(self, start: int, stop: int) -> Rescale:
        """Return the numbers of the channels [start, stop)."""
        if self.mantissa.dim() == 0:
            return self
        return replace(self, mantissa=self.mantissa[start:stop], shift=self.shift[start:stop])


@dataclass(frozen=True)
class Table:
    """A lookup table: entry i belongs to the input code `first + i * step`."""

    entries: Tensor
    """int64."""
    first: int
    step: int
    unit: float
    """Real value of one entry unit."""
    bits: int
    """Bits of an entry."""
    interpolation: Literal["down", "half_up"] = "down"
    """How a value between two entries is rounded."""


@dataclass(frozen=True)
class Slope:
    """What a fused activation multiplies sums below 0 with, before the ratio."""

    codes: Tensor
    """int64: one number, or one for each slice along *axis*."""
    shift: int
    """Binary places of the codes."""
    axis: int = -1
    float32: bool = False
    """Whether what comes of it is rounded to float32."""


@dataclass(frozen=True)
class Bounds:
    """What a fused activation clamps scaled sums to, in codes with *relay_bits* binary places."""

    low: int
    high: int
    relay_bits: int


@dataclass(frozen=True)
class Parameters:
    """Everything that is provided: decided before the integer forward runs."""

    platform: Platform
    inputs: Mapping[str, QParams]
    outputs: Mapping[str, QParams]
    constants: Mapping[str, Constant] = field(default_factory=dict)
    rescale: Rescale | None = None
    tables: Mapping[str, Table] = field(default_factory=dict)
    numbers: Mapping[str, int] = field(default_factory=dict)
    """Further integers that a rule decides (widths, normalisation shifts)."""
    accumulator_bits: int = 64
    activation: str = "none"
    """The fused activation."""
    fused: Slope | Bounds | None = None
    """Its numbers, where it takes some and works on the sum itself."""
    stages: Mapping[str, QParams] = field(default_factory=dict)
    """Declared stage -> its codes; zero point 0."""
    extra: Mapping[str, object] = field(default_factory=dict)
    """What a plugin's rule leaves for its own forward and for the file, as in `ir.graph.Node.extra`."""


@dataclass(frozen=True)
class Staged:
    """Output codes together with the codes of each declared rounding stage before them."""

    codes: Tensor
    stages: Mapping[str, Tensor]
