"""Normally distributed random numbers, equal on every processor: hashed from a seed, rounded from float64."""

from __future__ import annotations

import hashlib
from typing import Any

import numpy as np
from numpy.typing import NDArray

RAW = 16
"""The number of bytes from which a deviate is made."""


def deviates(shape: tuple[int, ...], seed: tuple[int, ...]) -> NDArray[Any]:
    """Return *count* float32 normal deviates by the Box-Muller method from the SHAKE-128 bytes of the seed."""
    count = int(np.prod(shape, dtype=np.int64))
    raw = hashlib.shake_128(repr(seed).encode()).digest(RAW * count)
    uniform = (np.frombuffer(raw, "<u8").reshape(2, -1) >> np.uint64(11)) * 2.0**-53
    radius = np.sqrt(-2.0 * np.log1p(-uniform[0]))
    found: NDArray[Any] = (radius * np.cos(2.0 * np.pi * uniform[1])).astype(np.float32).reshape(shape)
    return found
