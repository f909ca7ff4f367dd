"""Products along the last axis, added up: an operator that provides its exact sums and is requantized for it."""

from __future__ import annotations

from torch import Tensor

from quantizer.numerics import Parameters, centred
from quantizer.ops import operator


@operator("vec_dot")
def reference(a: Tensor, b: Tensor) -> Tensor:
    """Multiply element by element and add up the last axis."""
    return (a * b).sum(dim=-1)


@operator("vec_dot")
def accumulate(a: Tensor, b: Tensor, *, parameters: Parameters) -> Tensor:
    """Sum products of centred codes in int64: exact, with no rounding before the requantization."""
    return (centred(a, parameters.inputs["a"]).long() * centred(b, parameters.inputs["b"]).long()).sum(dim=-1)
