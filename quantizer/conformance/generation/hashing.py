"""Values that depend only on a seed, a name and coordinates, so that cropping a shape keeps them."""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from quantizer.core.case import Case

Seeds = int | tuple[int, ...]
MASK = (1 << 64) - 1
_GOLDEN = 0x9E3779B97F4A7C15  # 2**64 over the golden ratio; with the next two, the constants of splitmix64
_FIRST = np.uint64(0xBF58476D1CE4E5B9)
_SECOND = np.uint64(0x94D049BB133111EB)
_STEP, _27, _30, _31 = (np.uint64(number) for number in (_GOLDEN, 27, 30, 31))


def splitmix64(x: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """Return the splitmix64 finaliser of *x* (Steele, Lea, Flood 2014)."""
    x = x + _STEP
    x ^= x >> _30
    x *= _FIRST
    x ^= x >> _27
    x *= _SECOND
    x ^= x >> _31
    return x


def key(seed: int, *names: str) -> int:
    """Return a 64-bit hash of a seed and some names."""
    text = "/".join((str(seed), *names))
    # blake2b, because Python's own hash of a string differs from process to process
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "big")


def sample_number(case: Case) -> int:
    """Return the hash that decides whether *case* belongs to a sample. It does not depend on ranges.

    The last bits of a calibrated range differ between processors.
    """
    return int(case.but(ranges={}).digest, 16)


def bits(seed: Seeds, name: str, shape: tuple[int, ...]) -> NDArray[np.uint64]:
    """Return 64 random bits per element; element [i, j, ...] depends on seed, name, i, j, ... only.

    With several seeds the result has one more axis in front, with one entry for each seed.
    """
    return _mixed(_keys(seed, name), shape)


def bits_of(seed: Seeds, names: tuple[str, ...], shape: tuple[int, ...]) -> NDArray[np.uint64]:
    """Return the same bits for each of several *names*, one after another along a first axis."""
    return _mixed([_keys(seed, name) for name in names], shape)


def _keys(seed: Seeds, name: str) -> int | list[int]:
    return key(seed, name) if isinstance(seed, int) else [key(one, name) for one in seed]


def _mixed(keys: int | Sequence[int | list[int]], shape: tuple[int, ...]) -> NDArray[np.uint64]:
    with np.errstate(over="ignore"):
        value = np.array(keys, dtype=np.uint64)
        for axis, size in enumerate(shape):
            # each axis mixes its coordinate into the hash so far: [keys, sizes so far, size]
            value = splitmix64(value[..., None] ^ _salted(axis, size))
        return splitmix64(value)


@functools.lru_cache(maxsize=512)
def _salted(axis: int, size: int) -> NDArray[np.uint64]:
    """Return the hash contributions of the places along an axis; read, never written."""
    with np.errstate(over="ignore"):
        # another odd factor for each axis, so that [1, 0] and [0, 1] differ
        found: NDArray[np.uint64] = np.arange(1, size + 1, dtype=np.uint64) * np.uint64(
            (_GOLDEN * (2 * axis + 3)) & MASK
        )
    found.setflags(write=False)
    return found


def uniform(seed: Seeds, name: str, shape: tuple[int, ...]) -> NDArray[np.float64]:
    """Return numbers in [0, 1), a multiple of 2**-53 each."""
    return as_uniform(bits(seed, name, shape))


def as_uniform(drawn: NDArray[np.uint64]) -> NDArray[np.float64]:
    """Return 64 random bits as numbers in [0, 1), a multiple of 2**-53 each."""
    # the upper 53 bits: float64 holds them exactly
    return (drawn >> np.uint64(11)).astype(np.float64) * 2.0**-53


def integers(seed: Seeds, name: str, shape: tuple[int, ...], low: int, high: int) -> NDArray[np.int64]:
    """Return integers in [low, high]."""
    return low + (uniform(seed, name, shape) * (high - low + 1)).astype(np.int64)
