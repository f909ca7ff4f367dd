"""The data sets that follow from ranges alone: tensor contents decided by seed, name and coordinates."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from quantizer.conformance.generation.hashing import Seeds, as_uniform, bits, bits_of, integers, uniform
from quantizer.conformance.target import Target
from quantizer.core.case import Case
from quantizer.core.errors import CaseError
from quantizer.core.shapes import limits, variables

Array = NDArray[Any]
TINY = 2.0**-20
RUN = 64
"""In uneven channels, each run of this many elements of a channel has its own largest magnitude."""
LEAST_SHARE = 0.25
"""The least of these largest magnitudes, as a share of the range."""
SMALL = (2.0**-4, 2.0**-6)
"""Magnitude of the other elements relative to an outlier: in an activation, and in a weight."""


@dataclass(frozen=True)
class Site:
    """One tensor to fill."""

    name: str
    role: str
    shape: tuple[int, ...]
    low: float
    high: float
    channel_axis: int | None
    seed: Seeds
    """One seed or several. With several, functions in TOGETHER fill several tensors, stacked along a first axis."""
    is_first: bool = True
    """Whether it is the operator's first activation."""

    @property
    def salt(self) -> str:
        """The name under which values are hashed."""
        return self.name


def site_of(target: Target, case: Case, name: str) -> Site:
    """Return the tensor *name* of a case to be filled, its range within its domain; CaseError without a range."""
    item = target.spec.inputs[name]
    if name not in case.ranges:
        raise CaseError(f"case of {case.op}: tensor {name!r} has no range.")
    low, high = case.ranges[name]
    if item.domain is not None:
        least, most = limits(item, variables(target.spec, case.shapes, case.attrs))
        low, high = max(low, least), min(high, most)
    first = name == next(iter(target.spec.activations), None)
    return Site(name, item.role, case.shapes[name], low, high, item.channel_axis, case.data.seed, first)


def random(site: Site) -> Array:
    """Values are uniform over the range; one element in sixteen is at an end."""
    drawn, ends = bits_of(site.seed, (site.salt, site.salt + "/end"), site.shape)
    # 16 divides 2**64, so the remainder of 64 random bits has no bias; u then also chooses between the two ends
    u, at_end = as_uniform(drawn), ends % np.uint64(16) == 0
    return np.where(at_end, np.where(u < 0.5, site.low, site.high), site.low + u * (site.high - site.low))


def zeros(site: Site) -> Array:
    """Zero activations; constants are random."""
    return np.zeros(site.shape) if site.role == "activation" else random(site)


def one_hot(site: Site) -> Array:
    """One activation element at its largest magnitude, all others zero; constants are random."""
    if site.role != "activation":
        return random(site)
    drawn = bits(site.seed, site.salt, site.shape)
    values = np.zeros(drawn.shape)
    if values.size:
        rows = values.reshape(-1, math.prod(site.shape))
        # [seeds, elements]: the largest of independent hashes is at every place equally often
        places = drawn.reshape(rows.shape).argmax(axis=1)
        rows[np.arange(len(rows)), places] = site.high if site.high >= -site.low else site.low
    return values


def corners(site: Site) -> Array:
    """Every element at one end of its range."""
    return np.where(bits(site.seed, site.salt, site.shape) & np.uint64(1) == 0, site.low, site.high)


def accumulator_limit(site: Site) -> Array:
    """The largest sums that the shapes allow: activations at one end, weights at an end of alternating sign."""
    far = site.high if site.high >= -site.low else site.low
    if site.role == "activation":
        return np.full(site.shape, far)
    # by output channel, so that sums reach both ends of the accumulator
    sign = np.where(np.arange(site.shape[0]) % 2 == 0, 1.0, -1.0) if site.shape else np.array(1.0)
    return np.broadcast_to(
        sign.reshape([-1] + [1] * (len(site.shape) - 1)) * max(abs(site.low), abs(site.high)), site.shape
    ).copy()


def scale_spread(site: Site) -> Array:
    """Random; the first channel of a weight is tiny, the last one zero."""
    values = random(site)
    if site.role == "weight" and values.ndim:
        channels = np.moveaxis(values, site.channel_axis or 0, 0)
        if len(channels) > 1:
            channels[0] *= TINY
            channels[-1] = 0.0
    return values


def uneven_channels(site: Site) -> Array:
    """Random values. Each channel of a weight, and each block of it, has its own largest magnitude.

    Uniform values in a long channel would come close to the ends of the range, so that all long channels would have
    nearly one scale.
    """
    values = random(site)
    if site.role == "weight" and values.ndim:
        channels = np.moveaxis(values, site.channel_axis or 0, 0)
        flat = channels.reshape(len(channels), -1)
        runs = np.arange(flat.shape[1]) // RUN
        shares = uniform(site.seed, site.salt + "/shares", (len(channels), int(runs[-1]) + 2 if runs.size else 1))
        # [channels, 1 + runs]: the first column is the channel's share, the others are the shares of its runs
        shares = LEAST_SHARE + (1.0 - LEAST_SHARE) * shares
        channels[...] = (flat * shares[:, :1] * shares[:, 1:][:, runs]).reshape(channels.shape)
    return values


def outliers(site: Site) -> Array:
    """Small values, but one element of each channel of a weight and one activation element in sixteen are at an end.

    Most terms are then small, so that sums of many terms fit an output whose multiplier is 1 or more.
    """
    values = random(site)
    # a bool as index: 0 for activations, 1 for weights
    small = values * SMALL[site.role == "weight"]
    if site.role == "activation":
        return np.where((values == site.low) | (values == site.high), values, small)
    if site.role == "weight" and values.ndim and values.size:
        channels = np.moveaxis(small, site.channel_axis or 0, 0)
        flat = channels.reshape(len(channels), -1)
        places = bits(site.seed, site.salt + "/outlier", flat.shape).argmax(axis=1)
        flat[np.arange(len(flat)), places] = np.where(places % 2 == 0, site.low, site.high)
        channels[...] = flat.reshape(channels.shape)
    return small


def cancelling(site: Site) -> Array:
    """One element of the first activation is one step of 8 bits, the others 0; a second operand is at its ends.

    A kernel that counts codes from another zero adds up a large sum and subtracts an equally large correction.
    """
    if site.role == "bias":
        return np.zeros(site.shape)
    if site.role == "activation" and site.is_first:
        values = np.zeros(math.prod(site.shape))
        if values.size:
            # one step of an 8-bit range, the smallest input that is not 0
            values[int(bits(site.seed, site.salt, (1,))[0] % np.uint64(values.size))] = (site.high - site.low) / 255.0
        return values.reshape(site.shape)
    return accumulator_limit(site)


def returning(site: Site) -> Array:
    """The first half of the first activation is at one end, the second half as far on the other side of 0.

    Weights are at one end. A sum leaves a narrow accumulator half way and comes back.
    """
    if site.role == "bias":
        return np.zeros(site.shape)
    if site.role == "activation" and site.is_first:
        # equally far on both sides of 0, so that the halves of the sum cancel
        far, places = min(-site.low, site.high), np.arange(math.prod(site.shape))
        return np.where(places < places.size // 2, far, -far).reshape(site.shape)
    return accumulator_limit(site)


def _lone(site: Site, place: int) -> Array:
    """Return zeros but for the largest magnitude at one place."""
    values = np.zeros(math.prod(site.shape))
    values[place:][:1] = site.high if site.high >= -site.low else site.low
    return values.reshape(site.shape)


def _rising(site: Site) -> Array:
    return np.linspace(site.low, site.high, math.prod(site.shape)).reshape(site.shape)


def _falling(site: Site) -> Array:
    return np.linspace(site.high, site.low, math.prod(site.shape)).reshape(site.shape)


def _alternating(site: Site) -> Array:
    """Return values of either sign in turns, where the range has both."""
    share = 0.25 + 0.75 * uniform(site.seed, site.salt, site.shape)
    return np.where(np.arange(math.prod(site.shape)).reshape(site.shape) % 2 == 0, site.low, site.high) * share


def _with_row(site: Site, value: float) -> Array:
    """Return random values, one row of the first axis all at *value*."""
    values = random(site)
    if values.ndim and values.size:
        values[int(bits(site.seed, site.salt + "/row", (1,))[0] % np.uint64(len(values)))] = value
    return values


def _last_row(site: Site) -> Array:
    values = random(site)
    values[:-1] = 0.0
    return values


def _last_alone(site: Site) -> Array:
    """Return zeros with one value in the last place."""
    return _lone(site, max(math.prod(site.shape) - 1, 0))


def _steps(site: Site) -> Array:
    """Return values of at most one step of 8 bits."""
    return integers(site.seed, site.salt, site.shape, -1, 1) * (site.high - site.low) / 255.0


PATTERNS: tuple[Callable[[Site], Array], ...] = (
    _rising,
    _falling,
    _alternating,
    lambda site: _lone(site, 0),
    _last_alone,
    lambda site: _with_row(site, site.low),
    lambda site: _with_row(site, 0.0),
    lambda site: _last_row(site) if site.shape else random(site),
    lambda site: np.full(site.shape, site.high),
    _steps,
)
"""Patterns of an activation: sorted, alternating signs, one value at an end, constant rows, all values at an end."""
LAST_ALONE = PATTERNS.index(_last_alone)


def patterns(site: Site) -> Array:
    """Activations have one of PATTERNS, chosen by the seed, and a second one has the next. Constants are random."""
    if site.role != "activation":
        return random(site)
    # `patterns` is not in TOGETHER, so it gets one seed at a time
    assert isinstance(site.seed, int)
    values = PATTERNS[(site.seed + (0 if site.is_first else 1)) % len(PATTERNS)](site)
    return np.clip(values, site.low, site.high)


def infinities(site: Site) -> Array:
    """Random values; one activation element in four is an infinity of either sign. For operators with real inputs."""
    if site.role != "activation":
        return random(site)
    draw = bits(site.seed, site.salt + "/infinite", site.shape) % np.uint64(8)
    return np.where(draw == 0, -np.inf, np.where(draw == 1, np.inf, random(site)))


def small_integers(site: Site) -> Array:
    """Small integers, so that floating point is exact."""
    largest = {"activation": 4, "weight": 2, "bias": 8}[site.role]
    low = max(-largest, int(np.ceil(site.low))) if site.role == "activation" else -largest
    high = min(largest, int(np.floor(site.high))) if site.role == "activation" else largest
    return integers(site.seed, site.salt, site.shape, low, max(low, high)).astype(np.float64)


def indices(site: Site) -> Array:
    """Every data set has integers anywhere in the domain; one in four is at an end."""
    least, most = math.ceil(site.low), math.floor(site.high)
    anywhere = integers(site.seed, site.salt, site.shape, least, most)
    draw = bits(site.seed, site.salt + "/end", site.shape) % np.uint64(8)
    return np.where(draw == 0, least, np.where(draw == 1, most, anywhere)).astype(np.float64)


def each(name: str, site: Site, seeds: tuple[int, ...]) -> list[Array]:
    """Return the contents of data set *name* at *site* for each of *seeds*."""
    if name in TOGETHER:
        return [*FILLERS[name](replace(site, seed=seeds))]
    return [FILLERS[name](replace(site, seed=seed)) for seed in seeds]


FILLERS: dict[str, Callable[[Site], Array]] = {
    "zeros": zeros,
    "one_hot": one_hot,
    "corners": corners,
    "saturation": random,
    "accumulator_limit": accumulator_limit,
    "scale_spread": scale_spread,
    "zero_point_extremes": random,
    "small_integers": small_integers,
    "random": random,
    "infinities": infinities,
    "uneven_channels": uneven_channels,
    "outliers": outliers,
    "cancelling": cancelling,
    "returning": returning,
    "patterns": patterns,
}
TOGETHER = ("one_hot", "corners", "saturation", "zero_point_extremes", "small_integers", "random")
"""Data sets whose functions fill several tensors at once, one for each seed."""
