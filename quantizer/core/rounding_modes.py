"""The modes of rounding a real number to a code."""

from __future__ import annotations

from typing import Literal, get_args

RoundingMode = Literal[
    "half_even", "half_up", "half_down", "half_away", "half_toward_zero", "up", "down", "toward_zero", "stochastic"
]
DETERMINISTIC: tuple[RoundingMode, ...] = tuple(mode for mode in get_args(RoundingMode) if mode != "stochastic")
"""The modes that give one code for each real number."""
