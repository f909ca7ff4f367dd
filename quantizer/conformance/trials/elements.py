"""Makes one verdict, with its worst element, from the allowed interval of each element."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from quantizer.conformance.grids import decoded
from quantizer.conformance.trials.trial import Trial
from quantizer.core.verdict import Verdict, Worst

Array = NDArray[Any]
ALLOWED = ("expected.low", "expected.high")
"""Names under which a trial keeps the smallest and the largest code of the output that `arithmetic` allows."""
Index = tuple[int, ...]
Detail = Callable[[Index], Mapping[str, str]]
JUST_ABOVE_ONE = float(np.nextafter(1.0, 2.0))


@dataclass(frozen=True)
class Allowed:
    """The codes [low, high] that each element may have, and what a failure says about them."""

    low: Array
    high: Array
    value: Array | None = None
    """The exact real number in steps, without zero point; the ratio needs it."""
    allowance: Array | float = 0.5
    """Half a code plus the error of other stages."""
    zero: Array | int = 0
    """The zero point."""
    made_of: str = ""
    """Where the interval comes from."""
    detail: Detail | None = None
    """What a failure also shows of the element at an index."""

    def admits(self, codes: Array) -> Array:
        """Return for each code whether it is in its interval."""
        return (self.low <= codes) & (codes <= self.high)

    def ratio(self, trial: Trial, codes: Array) -> Array:
        """Return the ratio of error to allowed error: above 1 for a code outside, at most 1 for one inside."""
        inside = self.admits(codes)
        if self.value is None:
            # without a real value the distance counts in codes, and 1 more, so that it is above 1
            return np.where(inside, 0.0, np.maximum(self.low - codes, codes - self.high) + 1.0)
        return _ratio(trial, codes, inside, codes - self.zero - self.value, self.allowance)

    def worst(self, trial: Trial, codes: Array, index: Index, tensor: str) -> Worst:
        """Return what is shown of the element at *index*."""
        low, high, got = self.low[index], self.high[index], codes[index]
        return Worst(
            tensor,
            index,
            expected=_real(trial, low, high, tensor),
            got=_real(trial, got, got, tensor),
            allowed=f"[{low}, {high}]" + (f" = {self.made_of}" if self.made_of else ""),
            detail=self.detail(index) if self.detail else {},
        )


def judge_codes(check: str, trial: Trial, allowed: Allowed, *, got: Array | None = None, tensor: str = "y") -> Verdict:
    """Return the verdict on codes of the output, or on *got*, the codes of another tensor or run."""
    codes, low, high = trial.got if got is None else got, allowed.low, allowed.high
    if codes.shape != low.shape:
        return _wrong_shape(check, tensor, codes.shape, low.shape)
    if check == "arithmetic" and tensor == "y":
        # other checks compare further runs with these codes
        trial.shared.update(zip(ALLOWED, (low, high), strict=True))
    # one right code for each element, and all of them found: the common case takes a short way
    if low is high and np.array_equal(codes, low):
        return Verdict(check, "pass", elements=codes.size, width=1.0)
    if not codes.size:
        return Verdict(check, "pass")
    ratio = allowed.ratio(trial, codes)
    failed, index = int(np.count_nonzero(~allowed.admits(codes))), place_of_largest(ratio)
    return Verdict(
        check,
        "fail" if failed else "pass",
        ratio=float(ratio[index]),
        elements=codes.size,
        failed=failed,
        width=float((high - low).max() + 1),
        worst=allowed.worst(trial, codes, index, tensor) if failed else Worst(tensor, index),
    )


def _ratio(trial: Trial, codes: Array, inside: Array, away: Array, allowance: Array | float) -> Array:
    """Return |away| / allowance: at most 1 inside the interval, above 1 outside; 0 for a right code that saturates."""
    with np.errstate(invalid="ignore"):  # an infinite value, for which every code is right
        ratio = np.abs(away) / allowance
    ratio = np.where(np.isnan(ratio), 0.0, ratio)
    # at an end of the codes, the distance from a value that saturates says nothing
    at_end = (codes <= trial.output.qmin) | (codes >= trial.output.qmax)
    return np.where(inside, np.where(at_end, 0.0, np.minimum(ratio, 1.0)), np.maximum(ratio, JUST_ABOVE_ONE))


def _real(trial: Trial, low: Any, high: Any, tensor: str) -> str:
    if tensor != "y":
        return f"{low}" if low == high else f"{low}..{high}"
    scale, zero = float(trial.output.scale), int(trial.output.zero_point)
    real = [scale * float(decoded(np.array(code), trial.output, zero)) for code in (low, high)]
    if low == high:
        return f"{real[0]:.8g} (code {low})"
    return f"{real[0]:.8g}..{real[1]:.8g} (codes {low}..{high})"


def place_of_largest(values: Array) -> tuple[int, ...]:
    """Return the index of the largest of *values*, the first of several."""
    return tuple(int(i) for i in np.unravel_index(int(np.argmax(values)), values.shape))


def judge_reals(
    check: str,
    got: Array,
    low: Array,
    high: Array,
    centre: Array,
    *,
    made_of: str,
    vacuous: Array | None = None,
    tensor: str = "y",
) -> Verdict:
    """Return the verdict on real numbers that must lie in [low, high]; ratio = |got - centre| / half the interval.

    If the centre is infinite or NaN (at a pole, outside a domain), the same value is allowed too.
    """
    if got.shape != low.shape:
        return _wrong_shape(check, tensor, got.shape, low.shape)
    if not got.size:
        return Verdict(check, "pass")
    inside = (low <= got) & (got <= high)
    # the common case takes a short way
    right = bool(inside.all())
    if not right:
        inside |= ~np.isfinite(centre) & ((got == centre) | (np.isnan(got) & np.isnan(centre)))
    with np.errstate(all="ignore"):
        side = np.where(got >= centre, high - centre, centre - low)
        away = np.abs(got - centre)
        # an exact result has the ratio 0, even if its interval is a point
        ratio = np.where(away == 0, 0.0, away / side)
        ratio = np.where(np.isnan(ratio), 0.0, ratio)
    inner = np.minimum(ratio, 1.0)
    ratio = inner if right else np.where(inside, inner, np.maximum(ratio, JUST_ABOVE_ONE))
    counted = ratio if vacuous is None else np.where(vacuous & inside, 0.0, ratio)
    index = place_of_largest(counted)
    failed = 0 if right else int(np.count_nonzero(~inside))
    worst = Worst(tensor, index)
    if failed:
        shown = f"{centre[index]:.9g}", f"{got[index]:.9g}", f"[{low[index]:.9g}, {high[index]:.9g}] = {made_of}"
        worst = Worst(tensor, index, *shown)
    return Verdict(
        check,
        "fail" if failed else "pass",
        ratio=float(counted[index]),
        elements=got.size,
        failed=failed,
        vacuous=0 if vacuous is None else int(np.count_nonzero(vacuous)),
        worst=worst,
    )


def judge_equal(
    check: str,
    trial: Trial,
    got: Array,
    wanted: Array,
    made_of: str,
    *,
    tensor: str = "y",
    detail: Detail | None = None,
) -> Verdict:
    """Return the verdict on codes that must be equal."""
    return judge_codes(check, trial, Allowed(wanted, wanted, made_of=made_of, detail=detail), got=got, tensor=tensor)


def exact_value(value: Array, zero: int) -> Detail:
    """Return the detail that shows the exact number of an element, in codes."""
    return lambda index: {"exact": f"{value[index]:.9g} + {zero}"}


def _wrong_shape(check: str, tensor: str, got: tuple[int, ...], wanted: tuple[int, ...]) -> Verdict:
    worst = Worst(tensor, (), f"shape {list(wanted)}", f"shape {list(got)}", "the shape of the spec")
    return Verdict(check, "fail", ratio=float("inf"), elements=1, failed=1, worst=worst, reason="wrong shape")
