"""What the oracle of a room is asked: the codes and the numbers of one case in numpy, nothing of an operator or of torch.

A room names its oracles in its descriptor (`core.rooms.Oracle`). One is a function from `Asked` to the codes that a right
kernel gives, before the fused activation cuts them and the format saturates them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from numpy.typing import NDArray

from quantizer.core.platforms import Platform, Variant
from quantizer.core.schemes import Scheme

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
    """One case: what was declared, what the rule provided, and the codes that went in."""

    op: str
    platform: Platform
    scheme: Scheme
    variant: Variant
    """The requantization that the platform declares for the case."""
    bound: Mapping[str, Any]
    """Attributes and dimensions by name."""
    shape: tuple[int, ...]
    """Of the output."""
    codes: Mapping[str, Array]
    """Of each operand, int64."""
    grids: Mapping[str, Grid]
    """Of each operand."""
    output: Grid
    rescale: Ratio | None
    tables: Mapping[str, Entries]
    numbers: Mapping[str, int]
    """Further integers that the rule provided."""
    reduced: int | None
    """The axis along which the operator reduces, where its spec names one."""

    @property
    def axis(self) -> int:
        """The axis along which the operator reduces."""
        if self.reduced is None:
            raise ValueError(f"{self.op}: error_model.axis is missing in its spec")
        return self.reduced

    def centred(self, name: str) -> Array:
        """Return code - zero_point of an operand, per tensor."""
        return self.codes[name] - self.grids[name].zero_point
