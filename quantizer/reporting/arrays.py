"""Compares two archives of named arrays by tpu-mlir's verdicts, and by figures that hide no difference.

Like its npz_compare, it tries in this order: EQUAL, CLOSE (rtol 10**-order, atol 1e-8), SIMILAR (cosine and euclidean
similarity strictly above their tolerances). npz_compare ignores missing common names, NaN and infinities, and different
shapes and number formats; here each is a failure.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]
Word = Literal["EQUAL", "CLOSE", "SIMILAR", "NOT_EQUAL", "NOT_SIMILAR", "NOT_MATCH"]
PASSING: tuple[Word, ...] = ("EQUAL", "CLOSE", "SIMILAR")
ATOL = 1e-8
"""The absolute tolerance of npz_compare: numpy's default."""
EPSILON = 1e-7
"""The number that is added to the divisor of the euclidean similarity."""
ORDERS = (1, 2)
"""Orders below (exclusive) and above the requested one that are tried: for 3, from 5 down to 3."""


@dataclass(frozen=True)
class Tolerances:
    """The thresholds of CLOSE and SIMILAR."""

    close_order: int = 3
    cosine: float = 0.99
    euclid: float = 0.99
    int8_equal: bool = True
    """Whether arrays of int8 must be equal."""


@dataclass(frozen=True)
class Likeness:
    """The original's verdict of one pair: its word, and the numbers that it looked at."""

    word: Word
    order: int | None = None
    """CLOSE: the arrays are equal within rtol 10**-n; this is the largest such n."""
    cosine: float | None = None
    euclid: float | None = None
    sqnr: float | None = None
    """Signal to quantization noise in dB, shown and not judged."""


@dataclass(frozen=True)
class Pair:
    """One name that both archives have."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    likeness: Likeness
    fault: str = ""
    """Why the pair fails however similar it is: shapes, formats, NaN, or a step that is exceeded."""
    unequal: int = 0
    largest: float = 0.0
    """The largest absolute difference; for integers it counts codes."""
    relative: float = 0.0
    """The largest difference over the reference's magnitude; infinite where that is 0."""
    worst: tuple[int, ...] = ()
    """The index of the largest difference."""
    step: float | None = None
    in_steps: float | None = None
    """The largest difference in steps, where a step is known: a correctly rounded value has 1/2 at most."""
    outside: int = 0
    """The number of elements outside of the enclosure reference +- step / 2."""

    @property
    def passed(self) -> bool:
        """Whether the original's order accepts the pair and no other figure contradicts it."""
        return not self.fault and self.likeness.word in PASSING


@dataclass(frozen=True)
class Comparison:
    """Every common name, and the names that only one archive has."""

    pairs: tuple[Pair, ...]
    only_target: tuple[str, ...] = ()
    only_reference: tuple[str, ...] = ()
    unused: tuple[str, ...] = field(default=())
    """Names with a step that are not common."""

    @property
    def passed(self) -> bool:
        """Whether there is something to compare, and every pair passes."""
        return bool(self.pairs) and not self.unused and all(pair.passed for pair in self.pairs)


def compare_arrays(
    target: Mapping[str, Array], reference: Mapping[str, Array], tolerances: Tolerances, steps: Mapping[str, float]
) -> Comparison:
    """Return the comparison of two archives, in the reference's order; *steps*: name -> quantization step, positive."""
    common = [name for name in reference if name in target]
    pairs = tuple(compare_pair(name, target[name], reference[name], tolerances, steps.get(name)) for name in common)
    return Comparison(
        pairs,
        tuple(name for name in target if name not in reference),
        tuple(name for name in reference if name not in target),
        tuple(name for name in steps if name not in common),
    )


def compare_pair(name: str, target: Array, reference: Array, tolerances: Tolerances, step: float | None = None) -> Pair:
    """Return the comparison of one pair of real arrays, *target* against *reference*."""
    said = (name, reference.dtype.name, tuple(reference.shape))
    if target.shape != reference.shape:
        return Pair(*said, Likeness("NOT_MATCH"), f"shape {list(target.shape)} against {list(reference.shape)}")
    if target.dtype != reference.dtype:
        return Pair(*said, Likeness("NOT_MATCH"), f"{target.dtype} against {reference.dtype}")
    if reference.dtype.kind == "f":
        for side, values in (("target", target), ("reference", reference)):
            bad = np.argwhere(~np.isfinite(values))
            if len(bad):
                index = tuple(int(i) for i in bad[0])
                return Pair(
                    *said, Likeness("NOT_MATCH"), f"{side} has {values[index]} at {list(index)}, {len(bad)} such"
                )
    found = likeness(as_compared(target), as_compared(reference), tolerances, int8=reference.dtype == np.int8)
    return _measured(said, found, _real(target), _real(reference), reference.dtype, step)


def as_compared(values: Array) -> Array:
    """Return *values* as npz_compare converts them: int8 and int32 unchanged, uint16 as bfloat16, others as float32."""
    if values.dtype == np.uint16:
        # bfloat16 is the upper half of a float32
        return (values.astype(np.uint32) << 16).view(np.float32)
    kept = values.dtype in (np.dtype(np.int8), np.dtype(np.int32))
    with np.errstate(over="ignore"):
        return values if kept else values.astype(np.float32)


def likeness(target: Array, reference: Array, tolerances: Tolerances, *, int8: bool = False) -> Likeness:
    """Return the original's verdict of arrays of one shape and format."""
    if np.array_equal(target, reference):
        return Likeness("EQUAL")
    if int8 and tolerances.int8_equal:
        return Likeness("NOT_EQUAL")
    below, above = ORDERS
    for order in range(tolerances.close_order + above, tolerances.close_order - below, -1):
        # the strictest order that holds
        if np.allclose(target, reference, rtol=10.0**-order, atol=ATOL, equal_nan=True):
            if order >= tolerances.close_order:
                return Likeness("CLOSE", order)
            break
    a, b = (
        # as npz_compare replaces them; arrays with such values fail before
        np.nan_to_num(values.astype(np.float64), nan=0.0, posinf=1e4, neginf=-1e4).ravel()
        for values in (target, reference)
    )
    cosine, euclid = cosine_similarity(a, b), euclidean_similarity(a, b)
    alike = cosine > tolerances.cosine and euclid > tolerances.euclid
    return Likeness("SIMILAR" if alike else "NOT_SIMILAR", None, cosine, euclid, signal_to_noise(a, b))


def cosine_similarity(a: Array, b: Array) -> float:
    """Return a.b / (|a| |b|); NaN if a or b is zero."""
    norms = float(np.linalg.norm(a) * np.linalg.norm(b))
    return float(a @ b) / norms if norms else math.nan


def euclidean_similarity(a: Array, b: Array) -> float:
    """Return 1 - |a - b| / (|(a + b) / 2| + 1e-7)."""
    return 1.0 - float(np.linalg.norm(a - b)) / (float(np.linalg.norm((a + b) / 2)) + EPSILON)


def signal_to_noise(a: Array, b: Array) -> float:
    """Return 10 log10 of the variance of *a* over that of a - b, where *a* is not 0; infinite if a - b is constant."""
    signal, noise = a[a != 0], (a - b)[a != 0]
    power, lost = (float(np.sum((v - v.mean()) ** 2)) if v.size else 0.0 for v in (signal, noise))
    return 10 * math.log10(power / lost) if power and lost else math.inf


def _real(values: Array) -> Array:
    return (
        # Python integers: int64 could wrap, and float64 would round
        values.astype(object) if values.dtype.itemsize == 8 and values.dtype.kind in "iu" else values.astype(np.float64)
    )


def _measured(
    said: tuple[str, str, tuple[int, ...]],
    found: Likeness,
    a: Array,
    b: Array,
    dtype: np.dtype[Any],
    step: float | None,
) -> Pair:
    """Return the pair with its largest differences, also in steps if the step is known."""
    apart = np.abs(a - b).astype(np.float64)
    if not apart.size:
        return Pair(*said, found, step=step)
    worst = tuple(int(i) for i in np.unravel_index(int(apart.argmax()), apart.shape))
    size = np.abs(b).astype(np.float64)
    with np.errstate(divide="ignore", invalid="ignore"):
        relative = np.where(apart == 0, 0.0, apart / size)
    measured = Pair(
        *said,
        found,
        unequal=int((apart > 0).sum()),
        largest=float(apart.max()),
        relative=float(relative.max()),
        worst=worst,
    )
    if step is None:
        return measured
    allowed = enclosure_radius(a.astype(np.float64), size, step, dtype)
    outside = int((apart > allowed).sum())
    fault = f"{outside} of {apart.size} elements are further than half a step of {step:g} from the reference"
    return replace(
        measured, fault=fault if outside else "", step=step, in_steps=measured.largest / step, outside=outside
    )


def enclosure_radius(target: Array, size: Array, step: float, dtype: np.dtype[Any]) -> Array:
    """Return how far a correctly rounded *target* may be from a reference of magnitude *size*: step / 2 plus losses.

    A multiple of the step is rounded once to *dtype*, and so was the reference: half a unit in the last place each.
    """
    lost: Array = np.zeros(size.shape)
    if dtype.kind == "f":
        # half a unit in the last place of each of the two numbers
        lost = (np.spacing(np.abs(target).astype(dtype)) + np.spacing(size.astype(dtype))).astype(np.float64) / 2
    return np.asarray(step / 2 + lost)
