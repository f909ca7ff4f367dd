"""Results of a quantize rule: scales, zero points, codes of constants, multipliers, tables."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

import torch
from torch import Tensor

from quantizer.core.dtypes import DType
from quantizer.core.errors import GraphError
from quantizer.core.formats import format_of
from quantizer.core.platforms import Platform
from quantizer.core.scaling import Blocks
from quantizer.core.variants import Variant


@dataclass(frozen=True)
class QParams:
    """`real = scale * (value(code) - zero_point)`: per tensor (0-d), per slice of `axis` (1-d), per block (2-d).

    The value of a code is the code itself, except in a float format (`core.formats`).
    """

    dtype: DType
    """The format of the codes."""
    scale: Tensor
    """float64, positive and finite."""
    zero_point: Tensor
    """int64, the shape of `scale`."""
    qmin: int
    """The smallest code that may be used."""
    qmax: int
    """The largest one."""
    axis: int | None = None
    """The axis of the slices, for parameters per slice."""
    steps: Tensor | None = None
    """Codes per unit as float32, if the platform multiplies by this number instead of dividing by the scale."""
    blocks: Blocks | None = None
    """For parameters per block: the layout of the blocks. `axis` is then counted from the front."""

    def __post_init__(self) -> None:
        if not _all_positive(self.scale):
            raise GraphError(f"scale {self.scale.tolist()}: must be positive and finite.")
        if not self.dtype.min <= self.qmin <= self.qmax <= self.dtype.max:
            raise GraphError(
                f"codes [{self.qmin}, {self.qmax}]: must lie in {self.dtype} [{self.dtype.min}, {self.dtype.max}]."
            )

    @property
    def float32_steps(self) -> Tensor:
        """`steps`, for arithmetic that multiplies by them; ValueError if the platform's rule gave none."""
        if self.steps is None:
            raise ValueError("these parameters have no steps: the platform must declare scale: float32_steps.")
        return self.steps

    @property
    def bits(self) -> int:
        """The number of bits that the codes use.

        Their storage type may have more: 10 bits in int12. A float uses all its bits.
        """
        if self.dtype.kind == "float":
            return self.dtype.bits
        # from qmax, because a restricted range omits only the most negative code
        return self.qmax.bit_length() + (self.dtype.kind == "int")

    @property
    def first(self) -> int:
        """The smallest code of `bits` bits, even if the range is restricted."""
        if self.dtype.kind == "float":
            return self.qmin
        return -(1 << (self.bits - 1)) if self.dtype.kind == "int" else 0

    def copied(self) -> QParams:
        """Return the same numbers in new tensors."""
        other = object.__new__(QParams)  # skips the checks, which the original has passed
        tensors = {name: value.clone() for name, value in self.__dict__.items() if isinstance(value, Tensor)}
        other.__dict__.update(self.__dict__ | tensors)
        return other

    def along(self, values: Tensor, rank: int) -> Tensor:
        """Return per-axis *values* shaped to broadcast against a tensor of *rank* axes."""
        if self.axis is None or values.dim() == 0:
            return values
        if self.blocks is not None:
            raise GraphError("parameters per block: this arithmetic knows one scale for a tensor or a channel.")
        return values.reshape([-1 if i == self.axis % rank else 1 for i in range(rank)])

    def spread(self, values: Tensor, shape: Sequence[int]) -> Tensor:
        """Return *values* per axis or per block shaped to broadcast against a tensor of *shape*."""
        if self.blocks is None or self.axis is None:
            return self.along(values, len(shape))
        places = torch.tensor(self.blocks.places(shape[self.blocks.axis]), dtype=torch.int64)
        # [channels, blocks] -> [channels, length], transposed where the block axis comes first
        each = values[:, places] if self.axis < self.blocks.axis else values[:, places].T
        return each.reshape([size if i in (self.axis, self.blocks.axis) else 1 for i, size in enumerate(shape)])

    def coarsest(self) -> QParams:
        """Return the largest scale of each channel's blocks as a scale per channel; other parameters unchanged."""
        if self.blocks is None:
            return self
        scale = self.scale.amax(1)
        return replace(self, scale=scale, zero_point=torch.zeros_like(scale, dtype=torch.int64), blocks=None)

    @property
    def step(self) -> Tensor:
        """The real value of 1 in `numerics.quantize.centred`: the scale (a float format's times its smallest value)."""
        return self.scale * format_of(self.dtype.name).unit if self.dtype.kind == "float" else self.scale

    def repeated(self, count: int) -> QParams:
        """Repeat the list of per-axis parameters until there are *count* of them (groups share weights' scales)."""
        own = self.scale.numel()
        if self.axis is None or self.scale.dim() == 0 or own == count or not count or count % own:
            return self
        steps = None if self.steps is None else self.steps.repeat(count // own)
        scale, zero = self.scale.repeat(count // own), self.zero_point.repeat(count // own)
        return replace(self, scale=scale, zero_point=zero, steps=steps)

    def sliced(self, start: int, stop: int) -> QParams:
        """Return the parameters of the slices [start, stop) along `axis`; per-tensor parameters unchanged."""
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
    """The codes of a weight or a bias (int64) and their parameters."""

    codes: Tensor
    """int64."""
    params: QParams
    """Their parameters."""
    transformed: bool = False
    """Whether Winograd's algorithm multiplies by the codes: rows of four (`numerics.winograd`)."""

    def copied(self) -> Constant:
        """Return the same codes and numbers in new tensors."""
        return Constant(self.codes.clone(), self.params.copied(), self.transformed)

    @property
    def sums(self) -> Tensor:
        """The sum of the codes in each slice along the first axis, which is the slice's result on operands of 1.

        In Winograd's form, operands of 1 become B^T (1, 1, 1, 1) = (0, 2, 0, 0): only the second code counts, twice.
        """
        read = 2 * self.codes[..., 1] if self.transformed else self.codes
        return read.reshape(len(self.codes), -1).sum(1)

    @property
    def centred_sums(self) -> Tensor:
        """The sums of `code - zero_point`, for parameters per tensor or per slice along the first axis."""
        count = 2 * self.codes[0][..., 1].numel() if self.transformed else self.codes[0].numel()
        return self.sums - self.params.zero_point * count


@dataclass(frozen=True)
class Rescale:
    """The numbers that turn an accumulator into codes: `sum(factor * term) * mantissa * 2**-shift / divisor`."""

    variant: Variant
    """The requantization: the operations, and their order."""
    mantissa: Tensor
    """float64: an integer of the declared bits, a float32 number, a float64 ratio (half_away), or an exact product of
    scales. Shape: 0-d, per channel, or for weights in blocks a row per channel with a number for each block and one for
    the constant."""
    shift: Tensor
    """int64, the shape of `mantissa`."""
    divisor: float = 1.0
    """The output scale, where the variant divides by it exactly."""
    factors: Mapping[str, float] = field(default_factory=dict)
    """Input -> the multiplier of its centred codes before the sum, in the operation's order; 1 for missing inputs."""
    axis: int | None = None
    """The axis of the sum along which numbers per channel lie."""
    operands: Variant | None = None
    """How each `factor * term` is rounded before the terms are added. None: not at all, or as `variant` states."""
    pairs: Mapping[str, tuple[int, int]] = field(default_factory=dict)
    """Input -> the multiplier and shift behind its factor, if each input has its own."""

    def sliced(self, start: int, stop: int) -> Rescale:
        """Return the numbers of the channels [start, stop)."""
        if self.mantissa.dim() == 0:
            return self
        return replace(self, mantissa=self.mantissa[start:stop], shift=self.shift[start:stop])


@dataclass(frozen=True)
class Table:
    """A lookup table: entry i belongs to the input code `first + i * step`."""

    entries: Tensor
    """int64; float64 on some platforms."""
    first: int
    """The input code of entry 0."""
    step: int
    """Codes between two entries."""
    unit: float
    """Real value of one entry unit."""
    bits: int
    """The number of bits of an entry."""
    interpolation: Literal["down", "half_up"] = "down"
    """How a value between two entries is rounded."""


@dataclass(frozen=True)
class Slope:
    """The fixed-point slope by which a fused activation multiplies negative sums, before requantization."""

    codes: Tensor
    """int64: one number, or one for each slice along *axis*."""
    shift: int
    """Binary places of the codes."""
    axis: int = -1
    """The axis of the slices."""
    float32: bool = False
    """Whether its result is rounded to float32."""


@dataclass(frozen=True)
class Bounds:
    """Bounds to which a fused activation clamps rescaled sums, in output codes with *relay_bits* fractional bits."""

    low: int
    """The smaller bound."""
    high: int
    """The larger one."""
    relay_bits: int
    """Fractional bits of both."""


@dataclass(frozen=True)
class Parameters:
    """All numbers that the quantize rule provides for one operator, before its integer forward runs."""

    platform: Platform
    """The settings of the platform's file: `parameters.platform.rounding`, and so on."""
    inputs: Mapping[str, QParams]
    """Activation -> its parameters."""
    outputs: Mapping[str, QParams]
    """Output -> its parameters."""
    constants: Mapping[str, Constant] = field(default_factory=dict)
    """Weight or bias -> its codes and their parameters."""
    rescale: Rescale | None = None
    """The multiplier that brings a sum to codes; None where the arithmetic has no such multiplier."""
    tables: Mapping[str, Table] = field(default_factory=dict)
    """Name -> lookup table."""
    numbers: Mapping[str, int] = field(default_factory=dict)
    """Further integers that the rule provides (widths, normalisation shifts)."""
    accumulator_bits: int = 64
    """Bits of the register that holds a sum, under the scheme and the platform."""
    activation: str = "none"
    """The fused activation."""
    variant: Variant | None = None
    """The requantization that the platform declares for the case. It is present even if there is no multiplier."""
    fused: Slope | Bounds | None = None
    """The numbers of a fused activation that is applied to the sum."""
    stages: Mapping[str, QParams] = field(default_factory=dict)
    """Declared stage -> its codes; zero point 0."""
    extra: Mapping[str, object] = field(default_factory=dict)
    """Data that a plugin's rule leaves for its own forward and for the file that a graph is written to."""

    def copied(self) -> Parameters:
        """Return the same numbers in new tensors. A fused activation and a plugin's extra data are shared."""
        ratio = self.rescale
        return replace(
            self,
            inputs={name: params.copied() for name, params in self.inputs.items()},
            outputs={name: params.copied() for name, params in self.outputs.items()},
            constants={name: constant.copied() for name, constant in self.constants.items()},
            rescale=ratio and replace(ratio, mantissa=ratio.mantissa.clone(), shift=ratio.shift.clone()),
            tables={name: replace(table, entries=table.entries.clone()) for name, table in self.tables.items()},
            stages={name: params.copied() for name, params in self.stages.items()},
        )

    def of(self, name: str) -> QParams:
        """Return the parameters of operand *name*, an activation or a constant."""
        return self.constants[name].params if name in self.constants else self.inputs[name]


@dataclass(frozen=True)
class Staged:
    """Output codes together with the codes of each declared rounding stage before them."""

    codes: Tensor
    stages: Mapping[str, Tensor]
