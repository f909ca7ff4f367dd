"""Input and output types of a room's oracle: codes, grids and numbers of one case in numpy.

A room names its oracles in its descriptor (`core.rooms.Oracle`). An oracle has up to three functions of `Asked`: the
right codes before the fused activation and saturation; the entries of a table; and integers of the rule. Below are
the two rules of fixed-point numbers that several oracles share.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from quantizer.core.platforms import Platform
from quantizer.core.schemes import Scheme
from quantizer.core.variants import Variant

Array = NDArray[Any]


@dataclass(frozen=True)
class Grid:
    """`real = scale * (code - zero_point)`, 0-d or per slice along an axis."""

    scale: Array
    """float64."""
    zero_point: Array
    """int64."""
    qmin: int
    qmax: int


@dataclass(frozen=True)
class Entries:
    """A lookup table: entry i belongs to the input code, or distance, `first + i * step`."""

    entries: Array
    first: int
    step: int
    unit: float
    """Real value of one entry unit."""


@dataclass(frozen=True)
class Ratio:
    """The multiplier of a sum: `sum(factor * term) * mantissa * 2**-shift / divisor`."""

    mantissa: Array
    shift: Array
    divisor: float
    factors: Mapping[str, float]


@dataclass(frozen=True)
class Asked:
    """One case: its declarations, the provided numbers, and the input codes."""

    op: str
    family: str
    platform: Platform
    scheme: Scheme
    variant: Variant
    """The requantization that the platform declares for the case."""
    bound: Mapping[str, Any]
    """Attributes and dimensions by name."""
    shape: tuple[int, ...]
    """Shape of the output."""
    codes: Mapping[str, Array]
    """The codes of each operand, int64; empty while a rule's numbers are judged."""
    grids: Mapping[str, Grid]
    """The grid of each operand."""
    output: Grid
    rescale: Ratio | None
    tables: Mapping[str, Entries]
    numbers: Mapping[str, int]
    """Further integers that the rule provided."""
    reduced: int | None
    """The axis along which the operator reduces, where its spec names one."""
    channels: int | None = None
    """The output's channel axis: 1 for images, else the axis that the spec names, if any."""
    added: Callable[[], tuple[Array, Array] | None] = lambda: None
    """Computes `sums` and `terms`, only when a function of the room needs them."""

    @property
    def axis(self) -> int:
        """The axis along which the operator reduces."""
        if self.reduced is None:
            raise ValueError(f"{self.op}: error_model.axis is missing in its spec")
        return self.reduced

    @property
    def sums(self) -> Array:
        """The exact sum of each output element as int64: products of centred codes plus the bias, or centred codes.

        ValueError for an operator that adds no products and has no window.
        """
        return self._added()[0]

    @property
    def terms(self) -> Array:
        """The number by which a mean divides each sum, int64; 1 for operators that do not divide."""
        return self._added()[1]

    def _added(self) -> tuple[Array, Array]:
        if (found := self.added()) is None:
            raise ValueError(f"{self.op}: family {self.family} has no sums of products and no windows")
        return found

    def centred(self, name: str) -> Array:
        """Return code - zero_point of an operand, per tensor."""
        return self.codes[name] - self.grids[name].zero_point


def fixed(ratio: float) -> tuple[int, int]:
    """Return a ratio's 31-bit multiplier and right shift; the ends of the range outside [2**-32, 2**30)."""
    fraction, exponent = math.frexp(ratio)
    mantissa = math.floor(fraction * 2**31 + 0.5)
    if mantissa == 2**31:
        mantissa, exponent = 2**30, exponent + 1
    if exponent < -31:
        return 0, 31
    return (mantissa, 31 - exponent) if exponent <= 30 else (2**31 - 1, 1)


def high_multiplied(
    values: Array, multiplier: int, shift: int, *, away: Array | bool = True, wraps: bool = True
) -> Array:
    """Return values * multiplier * 2**-shift as Python integers: a high multiply, then a rounding shift.

    A multiplier of 1 or more shifts to the left first, in 32 bits, which wrap if the kernel's do.
    """
    left, right = max(31 - shift, 0), max(shift - 31, 0)
    plain = np.asarray(values)
    in_words = _stays_in_words(plain, multiplier, left % 32 if wraps else left, right)
    # numpy returns a Python int for a product of 0-d object arrays
    held = plain.astype(np.int64) if in_words else np.asarray(values, object)
    if left and wraps:
        held = ((held << left % 32) + 2**31) % 2**32 - 2**31
    elif left:
        held = held << left
    high = (held * multiplier + 2**30) >> 31
    if right:
        high = (high + (1 << (right - 1)) - ((high < 0) & away)) >> right
    found = np.asarray(high)
    return found.astype(object) if found.ndim else found


def _stays_in_words(values: Array, multiplier: int, left: int, right: int) -> bool:
    """Return whether 64 bits hold every number of a high multiply: a tenth of the time of Python integers."""
    if values.dtype != np.int64 or not 0 <= multiplier <= 2**31 or right > 60:
        return False
    largest = max(int(values.max(initial=0)), -int(values.min(initial=0)))
    return largest << left < 2**61 and (largest << left) * multiplier < 2**62
