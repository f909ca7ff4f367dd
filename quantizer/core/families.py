"""Facts about families of operators that kernels and checks both read."""

from __future__ import annotations

SEPARATE = ("concatenation",)
"""Families that rescale each operand to the output separately.

Other families first rescale the operands to a common scale.
"""
OWN_MULTIPLIERS = (*SEPARATE, "comparison", "selection")
"""Families whose operands each have their own multiplier to the output's scale."""
