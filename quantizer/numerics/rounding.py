"""Rounding modes, with one definition for tensors, scalars, shifts and integer divisions.

up and down are toward +inf and -inf; half_up and half_down send ties there. The seed of `stochastic` and the
element's flat index give one uniform number (splitmix64). So a result is the same under any number of threads.
"""

from __future__ import annotations

import math
from fractions import Fraction

import torch
from torch import Tensor

from quantizer.core.errors import GraphError
from quantizer.core.rounding_modes import RoundingMode

_GOLDEN = 0x9E3779B97F4A7C15  # 2**64 over the golden ratio; this and the next two are the constants of splitmix64
_MIX_1 = 0xBF58476D1CE4E5B9
_MIX_2 = 0x94D049BB133111EB
_MASK_64 = (1 << 64) - 1
_BELOW_HALF = 0.49999999999999994
"""The largest float64 below 1/2. |x| plus this number reaches the next integer exactly if |x| is at or above the
tie."""


def round_tensor(x: Tensor, mode: RoundingMode, *, seed: int | Tensor = 0) -> Tensor:
    """Round float *x* to integers of its type; integers, infinities and NaN stay. *seed*: a number, or an int64 scalar.

    Ties are decided on `x - trunc(x)`, which is exact: `floor(x + 0.5)` is wrong for 0.49999999999999994.
    """
    if mode == "half_even":
        return torch.round(x)
    if mode == "up":
        return torch.ceil(x)
    if mode == "down":
        return torch.floor(x)
    if mode == "half_away" and x.dtype == torch.float64:
        return x.abs().add_(_BELOW_HALF).floor_().copysign_(x)
    whole = torch.trunc(x)
    if mode == "toward_zero":
        return whole
    part = x - whole
    if mode == "stochastic":
        return _round_stochastic(whole, part, seed)
    # *part* has the sign of x, so a tie below 0 is -0.5, and up means toward zero there
    if mode == "half_up":
        return whole + ((part >= 0.5).to(x.dtype) - (part < -0.5).to(x.dtype))
    if mode == "half_down":
        return whole + ((part > 0.5).to(x.dtype) - (part <= -0.5).to(x.dtype))
    if mode == "half_away":
        return whole + ((part >= 0.5).to(x.dtype) - (part <= -0.5).to(x.dtype))
    if mode == "half_toward_zero":
        return whole + ((part > 0.5).to(x.dtype) - (part < -0.5).to(x.dtype))
    raise _unknown(mode)


def round_scalar(x: float | Fraction, mode: RoundingMode, *, seed: int = 0, index: int = 0) -> int:
    """Round one number exactly as `round_tensor` rounds the element at flat *index*; GraphError if not finite."""
    if isinstance(x, float) and not math.isfinite(x):
        raise GraphError(f"{x}: cannot be rounded. Clamp or replace it before rounding.")
    exact = Fraction(x)
    floor = exact.numerator // exact.denominator
    rest = exact - floor
    if mode == "stochastic":
        # the upper 53 bits, as many as a float64 in [0, 1) holds
        uniform = Fraction((_splitmix64_int(seed, index) >> 11), 1 << 53)
        return floor + (uniform < rest)
    tie = (rest > Fraction(1, 2)) - (rest < Fraction(1, 2))
    bumps = {
        "half_even": tie > 0 or (tie == 0 and floor % 2 == 1),
        "half_up": tie >= 0,
        "half_down": tie > 0,
        "half_away": tie > 0 or (tie == 0 and floor >= 0),
        "half_toward_zero": tie > 0 or (tie == 0 and floor < 0),
        "up": rest > 0,
        "down": False,
        "toward_zero": rest > 0 and floor < 0,
    }
    if mode not in bumps:
        raise _unknown(mode)
    return floor + bumps[mode]


def shift_right(v: Tensor, bits: Tensor | int, mode: RoundingMode, *, seed: int = 0) -> Tensor:
    """Return int64 `v / 2**bits`, rounded; negative *bits* shift left (two's complement), beyond +-63 counts as 63.

    The semantics of tpu-mlir's RightShiftRound, for every mode.
    """
    if isinstance(bits, int):
        bits = torch.tensor(bits, dtype=torch.int64)
    right = bits.clamp(0, 63)
    one = torch.ones_like(right)
    quotient = v >> right
    if bool((bits < 0).any()):
        quotient = quotient << (-bits).clamp(0, 63)
    # the shift floors, so the remainder is never negative
    rest = v & ((one << right) - 1)
    # a shift by 0 leaves no remainder; half must only be larger than 0
    half = torch.where(right == 0, one, one << (right - 1).clamp_min(0))
    if mode == "stochastic":
        return quotient + (_uniform(v, seed) & ((one << right) - 1)).lt(rest).to(torch.int64)
    return quotient + _bump(quotient, rest, half, torch.zeros_like(half), mode)


def divide(numerator: Tensor, denominator: Tensor | int, mode: RoundingMode, *, seed: int = 0) -> Tensor:
    """Return int64 `numerator / denominator`, rounded exactly; the denominator is positive and below 2**62."""
    if isinstance(denominator, int):
        denominator = torch.tensor(denominator, dtype=torch.int64)
    quotient = torch.div(numerator, denominator, rounding_mode="floor")
    rest = numerator - quotient * denominator
    if mode == "stochastic":
        return quotient + torch.remainder(_uniform(numerator, seed), denominator).lt(rest).to(torch.int64)
    # rounded up, so that `rest >= half` is right for odd denominators, which have no tie
    half = (denominator + 1) >> 1
    return quotient + _bump(quotient, rest, half, denominator & 1, mode)


def splitmix64(counter: Tensor) -> Tensor:
    """Return the splitmix64 hash of each int64 *counter* value, as int64 (Steele, Lea, Flood 2014)."""
    # int64 products wrap as the unsigned ones of the original; only its right shifts must not copy the sign
    z = counter * _signed(_GOLDEN)
    z = (z ^ _logical_shift(z, 30)) * _signed(_MIX_1)
    z = (z ^ _logical_shift(z, 27)) * _signed(_MIX_2)
    return z ^ _logical_shift(z, 31)


def _bump(quotient: Tensor, rest: Tensor, half: Tensor, odd: Tensor, mode: RoundingMode) -> Tensor:
    """Return 1 where the floor *quotient* with remainder *rest* is rounded up; where *odd* is 1, it cannot be a tie."""
    if mode == "down":
        return torch.zeros_like(quotient)
    if mode == "up":
        return (rest != 0).to(torch.int64)
    if mode == "toward_zero":
        return ((rest != 0) & (quotient < 0)).to(torch.int64)
    tie = (rest == half) & (odd == 0)
    if mode == "half_up":
        return (rest >= half).to(torch.int64)
    if mode == "half_even":
        up = (quotient & 1) == 1
    elif mode == "half_away":
        up = quotient >= 0
    elif mode == "half_toward_zero":
        up = quotient < 0
    elif mode == "half_down":
        up = torch.zeros_like(tie)
    else:
        raise _unknown(mode)
    return torch.where(tie, up, rest >= half).to(torch.int64)


def _round_stochastic(whole: Tensor, part: Tensor, seed: int | Tensor) -> Tensor:
    """Round away from *whole* with probability |part|; comparisons are exact, because 1 - uniform has 53 bits."""
    uniform = _logical_shift(_uniform(whole, seed), 11).to(torch.float64) * 2.0**-53
    up = (part > 0) & (uniform < part)
    down = (part < 0) & (uniform - 1.0 >= part)
    return whole + (up.to(whole.dtype) - down.to(whole.dtype))


def _uniform(like: Tensor, seed: int | Tensor) -> Tensor:
    """Return one hashed int64 for each element of *like*, by flat index."""
    start = splitmix64(seed.reshape(())) if isinstance(seed, Tensor) else _signed(_splitmix64_int(seed, None))
    return splitmix64(torch.arange(1, like.numel() + 1, dtype=torch.int64) + start).reshape(like.shape)


def _splitmix64_int(seed: int, index: int | None) -> int:
    counter = seed if index is None else _splitmix64_int(seed, None) + index + 1
    z = counter * _GOLDEN & _MASK_64
    z = (z ^ z >> 30) * _MIX_1 & _MASK_64
    z = (z ^ z >> 27) * _MIX_2 & _MASK_64
    return z ^ z >> 31


def _logical_shift(z: Tensor, bits: int) -> Tensor:
    return (z >> bits) & ((1 << (64 - bits)) - 1)


def _signed(value: int) -> int:
    return value - (1 << 64) if value >= 1 << 63 else value


def _unknown(mode: str) -> GraphError:
    return GraphError(
        f"rounding {mode!r}: no such mode. Write one of half_even, half_up, half_down, half_away, "
        "half_toward_zero, up, down, toward_zero, stochastic."
    )
