"""Small changes inside a normalisation: its moments, its inverse root, its normalised value."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from quantizer.conformance.faults.changes import Wrap
from quantizer.numerics import normalize
from quantizer.numerics.qparams import Parameters
from quantizer.numerics.roots import QUOTIENT_BITS
from quantizer.ops.registry import Function

FEW_BITS = 8


@contextmanager
def _step(name: str, change: Callable[[Function], Function]) -> Iterator[None]:
    """Run a block in which one step of the operator is changed."""
    # the steps are functions of the module, which the forward looks up by name at each call
    own = getattr(normalize, name)
    setattr(normalize, name, change(own))
    try:
        yield
    finally:
        setattr(normalize, name, own)


def step(name: str, change: Callable[[Function], Function]) -> Wrap:
    """Change one step of the integer forward."""

    def wrap(original: Function) -> Function:
        def faulty(*operands: Tensor, **named: Any) -> Any:
            with _step(name, change):
                return original(*operands, **named)

        return faulty

    return wrap


def plus(amount: int) -> Callable[[Function], Function]:
    """Add to the result of a step."""
    return lambda own: lambda *values: own(*values) + amount


def root_minus_one(own: Function) -> Function:
    """Lower the mantissa of a root by one."""

    def changed(*values: Any) -> tuple[Tensor, Tensor]:
        mantissa, exponent = own(*values)
        return (mantissa - 1).clamp(min=0), exponent

    return changed


def normalized_plus_one(own: Function) -> Function:
    """Add one to the numbers that the platform shifts and rounds: the normalised value and the factor of 16 bits."""
    return lambda values, bits, mode: own(values, bits, mode) + (mode != "half_up")


def floored(own: Function) -> Function:
    """Round down instead."""
    return lambda top, bottom, mode: own(top, bottom, "down")  # noqa: ARG005


def few_bits(own: Function) -> Function:
    """Keep only the leading bits of the argument of a root."""

    def changed(squares: Tensor, *rest: Any) -> Any:
        length = torch.frexp(squares.double()).exponent.to(torch.int64)
        low = (length - FEW_BITS).clamp(min=0)
        # the bits below the FEW_BITS leading ones become 0
        return own(squares >> low << low, *rest)

    return changed


def inverse_in_q15(own: Function) -> Function:
    """Multiply by an inverse root in units of 2**-15 instead of dividing by the root."""
    del own

    def changed(numerator: Tensor, mantissa: Tensor, exponent: Tensor, mode: str) -> Tensor:  # noqa: ARG001
        # the root is mantissa * 2**-exponent
        inverse = torch.exp2(exponent.double() + 15) / mantissa.clamp(min=1)
        return numerator * torch.round(inverse).to(torch.int64) << (QUOTIENT_BITS - 15)

    return changed


def unbiased(original: Function) -> Function:
    """Divide the squares by N - 1 instead of N."""

    def faulty(*operands: Tensor, **named: Any) -> Any:
        with (
            # the two steps of the forwards in which squares are divided by N
            _step("_spread", lambda own: lambda rows, total: _biased_away(own(rows, total), rows.shape[1])),
            _step("_variance", lambda own: lambda squares, n, shift: own(_biased_away(squares, n), n, shift)),
        ):
            return original(*operands, **named)

    return faulty


def _biased_away(squares: Tensor, count: int) -> Tensor:
    return squares * count // max(count - 1, 1)


def without_gamma(original: Function) -> Function:
    """Leave gamma out."""
    return lambda x, gamma=None, beta=None, **named: original(x, None, beta, **named)  # noqa: ARG005


def rolled_gamma(original: Function) -> Function:
    """Give each channel the gamma of its neighbour."""

    def faulty(x: Tensor, gamma: Tensor | None = None, beta: Tensor | None = None, **named: Any) -> Any:
        return original(x, None if gamma is None else gamma.roll(1, -1), beta, **named)

    return faulty


def number_change(name: str, amount: int) -> Callable[[Parameters], Parameters]:
    """Add to one of the provided numbers."""
    return lambda p: replace(p, numbers={k: v + amount * (k == name) for k, v in p.numbers.items()})
