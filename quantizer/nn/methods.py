"""The words of a fixed-point configuration, and the numbers that stand for them in stored configurations."""

from __future__ import annotations

import enum
from typing import Literal

Group = Literal["batch", "channel"]
"""The slices with separate scales: those along axis 0 (the filters of a weight), or along axis 1."""
Compat = Literal["nics_fix"]
"""The project whose grid is reproduced: nics_fix_pt 0.4.0, whose grid holds 2**bits + 1 values."""


class QuantizeMethod(enum.IntEnum):
    """Whether a datum is quantized, and whether its range is chosen anew in each forward."""

    NONE = 0
    """The datum is not quantized."""
    AUTO = 1
    """The range follows the data, and is kept as the scale."""
    FIXED = 2
    """The stored scale is used."""
    FIX_NONE = 0
    FIX_AUTO = 1
    FIX_FIXED = 2


class RangeMethod(enum.IntEnum):
    """How AUTO chooses a range from data."""

    RANGE_MAX = 0
    """The largest magnitude."""
    RANGE_3SIGMA = 1
    """|mean| + 3 standard deviations (unbiased)."""
    RANGE_MAX_TENPERCENT = 2
    """The magnitude that a tenth of the elements reach."""
    RANGE_SWEEP = 3
    """The range of RANGE_MAX, its half or its quarter: whichever has the smallest sum of absolute errors."""


FIX_NONE, FIX_AUTO, FIX_FIXED = QuantizeMethod.NONE, QuantizeMethod.AUTO, QuantizeMethod.FIXED
RANGE_MAX, RANGE_3SIGMA = RangeMethod.RANGE_MAX, RangeMethod.RANGE_3SIGMA
RANGE_MAX_TENPERCENT, RANGE_SWEEP = RangeMethod.RANGE_MAX_TENPERCENT, RangeMethod.RANGE_SWEEP
