"""The ten data sets: what the tensors of a case hold, decided by seed, name and coordinates."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from quantizer.conformance.generation.hashing import bits, integers, key, uniform
from quantizer.conformance.target import Target
from quantizer.core.case import Case
from quantizer.core.errors import CaseError
from quantizer.core.shapes import channel_axis, limits, variables
from quantizer.numerics.qparams import QParams
from quantizer.numerics.rules import activation_params, weight_params

Array = NDArray[Any]
SMALL_CODES = 7
DEVIATIONS = (SMALL_CODES, 1, 2)
"""Codes by which tied elements of a normalisation lie beside their mean: a unit of the variance counts for few of them."""
TINY = 2.0**-20
FLOAT32_BITS = 24
"""Bits of the mantissa of float32."""


@dataclass(frozen=True)
class Site:
    """One tensor to fill."""

    name: str
    role: str
    shape: tuple[int, ...]
    low: float
    high: float
    channel_axis: int | None
    seed: int

    @property
    def salt(self) -> str:
        """The name under which values are hashed."""
        return self.name


def random(site: Site) -> Array:
    """Uniform over the range; one element in sixteen at an end."""
    u = uniform(site.seed, site.salt, site.shape)
    at_end = bits(site.seed, site.salt + "/end", site.shape) % np.uint64(16) == 0
    return np.where(at_end, np.where(u < 0.5, site.low, site.high), site.low + u * (site.high - site.low))


def zeros(site: Site) -> Array:
    """Zero activations; constants are random."""
    return np.zeros(site.shape) if site.role == "activation" else random(site)


def one_hot(site: Site) -> Array:
    """One activation element at its largest magnitude, all others zero; constants are random."""
    if site.role != "activation":
        return random(site)
    values = np.zeros(site.shape)
    if values.size:
        position = np.unravel_index(int(np.argmax(bits(site.seed, site.salt, site.shape))), site.shape)
        values[position] = site.high if site.high >= -site.low else site.low
    return values


def corners(site: Site) -> Array:
    """Every element at one end of its range."""
    return np.where(bits(site.seed, site.salt, site.shape) & np.uint64(1) == 0, site.low, site.high)


def accumulator_limit(site: Site) -> Array:
    """The largest sums that the shapes allow: activations at one end, the sign of weights by channel."""
    far = site.high if site.high >= -site.low else site.low
    if site.role == "activation":
        return np.full(site.shape, far)
    sign = np.where(np.arange(site.shape[0]) % 2 == 0, 1.0, -1.0) if site.shape else np.array(1.0)
    return np.broadcast_to(
        sign.reshape([-1] + [1] * (len(site.shape) - 1)) * max(abs(site.low), abs(site.high)), site.shape
    ).copy()


def scale_spread(site: Site) -> Array:
    """Random; the first channel of a weight tiny, the last one dead."""
    values = random(site)
    channels = np.moveaxis(values, site.channel_axis or 0, 0)
    if site.role == "weight" and len(channels) > 1:
        channels[0] *= TINY
        channels[-1] = 0.0
    return values


def small_integers(site: Site) -> Array:
    """Small integers, so that floating point is exact."""
    largest = {"activation": 4, "weight": 2, "bias": 8}[site.role]
    low = max(-largest, int(np.ceil(site.low))) if site.role == "activation" else -largest
    high = min(largest, int(np.floor(site.high))) if site.role == "activation" else largest
    return integers(site.seed, site.salt, site.shape, low, max(low, high)).astype(np.float64)


def indices(site: Site) -> Array:
    """Whole numbers anywhere in the domain, whatever the data set: one in four at an end of it."""
    least, most = math.ceil(site.low), math.floor(site.high)
    anywhere = integers(site.seed, site.salt, site.shape, least, most)
    draw = bits(site.seed, site.salt + "/end", site.shape) % np.uint64(8)
    return np.where(draw == 0, least, np.where(draw == 1, most, anywhere)).astype(np.float64)


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
}


DIRECTED = ("ties", "every_code")
"""Sets that follow from the codes that parameters give."""


def materialise(target: Target, case: Case) -> dict[str, Tensor]:
    """Return the float32 tensors of *case* in the operator's axis order; CaseError for an unknown data set."""
    if case.data.set not in (*FILLERS, *DIRECTED):
        raise CaseError(f"data set {case.data.set!r}: must be one of {', '.join((*DIRECTED, *FILLERS))}.")
    arrays = _filled(_Recipe(target, case))
    return {name: torch.from_numpy(_kept(case, name, values).astype(np.float32)) for name, values in arrays.items()}


class _Recipe:
    """What the values of a case depend on; equal recipes give equal values."""

    def __init__(self, target: Target, case: Case) -> None:
        self.target = target
        self.case = case
        ranges = case.ranges if case.data.set in DIRECTED else {n: case.ranges.get(n) for n in case.shapes}
        self._key = (
            target.spec, target.scheme.name, target.platform.platform, case.data.set, case.data.seed,
            tuple(case.shapes.items()), tuple(ranges.items()), tuple(case.attrs.items()),
        )  # fmt: skip

    def __hash__(self) -> int:
        return hash(self._key)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Recipe) and self._key == other._key


@functools.lru_cache(maxsize=16)
def _filled(recipe: _Recipe) -> dict[str, Array]:
    target, case = recipe.target, recipe.case
    if case.data.set == "ties":
        filled = _ties(target, case)
    elif case.data.set == "every_code":
        filled = {name: _every_code(target, case, name) for name in case.shapes}
    else:
        filler = FILLERS[case.data.set]
        filled = {name: filler(_site(target, case, name)) for name in case.shapes}
    pointing = {name: item for name, item in target.spec.inputs.items() if item.kind == "index" and name in filled}
    return filled | {name: indices(_site(target, case, name)) for name in pointing}


def _site(target: Target, case: Case, name: str) -> Site:
    item = target.spec.inputs[name]
    if name not in case.ranges:
        raise CaseError(f"case of {case.op}: tensor {name!r} has no range.")
    low, high = case.ranges[name]
    if item.domain is not None:
        least, most = limits(item, variables(target.spec, case.shapes, case.attrs))
        low, high = max(low, least), min(high, most)
    return Site(name, item.role, case.shapes[name], low, high, item.channel_axis, case.data.seed)


def _kept(case: Case, name: str, values: Array) -> Array:
    if name not in case.data.kept:
        return values
    kept = np.zeros_like(values)
    for coordinates in case.data.kept[name]:
        if len(coordinates) == values.ndim and all(c < s for c, s in zip(coordinates, values.shape, strict=True)):
            kept[coordinates] = values[coordinates]
    return kept


def _ties(target: Target, case: Case) -> dict[str, Array]:
    """Return values whose codes are small integers under power-of-two scales, and a bias solved for a tie.

    With all scales powers of two the accumulator is brought to codes by 2**-m, so a sum whose remainder modulo 2**m is
    2**(m-1) lies exactly between two codes. Each channel's bias puts one hashed element of the channel there.
    """
    tensors: dict[str, Array] = {}
    for name in case.shapes:
        item = target.spec.inputs[name]
        if item.role == "activation":
            tensors[name] = _small_codes(target, case, name)
        elif item.role == "weight":
            tensors[name] = _tied_weights(target, case, name)
    for name in case.shapes:
        if target.spec.inputs[name].role == "bias":
            tensors[name] = _solved_bias(target, case, name, tensors)
    if case.data.seed % 2 and is_wide_product(target):
        tensors |= _solved_product(target, case, tensors)
    return {name: tensors[name] for name in case.shapes}


def is_wide_product(target: Target) -> bool:
    """Return whether sums of products of two activations leave the 24 bits of float32."""
    spec = target.spec
    crossed = spec.error_model.kind == "bilinear" and len(spec.activations) == 2
    return crossed and target.scheme.activation.bits > FLOAT32_BITS // 2


def _solved_product(target: Target, case: Case, tensors: Mapping[str, Array]) -> dict[str, Array]:
    """Return both operands with a first product one unit beside a tie, beyond float32, on the side that ties to even leave.

    The next one along b is a tie itself. The first code of a is large and odd, so that a code of b with any remainder modulo
    the output's step exists; the others of its row are zero where products are added, and the same where they stand alone.
    Without the output's range, both are as large as they can be.
    """
    (a, b), seed = target.spec.activations, case.data.seed
    scales = [float(activation_of(target, case, name).scale) for name in (a, b)]
    reach = activation_of(target, case, b).qmax
    odd = (reach - 1) // 2 * 2 + 1 - 2 * (key(seed, a) % 64)
    codes = [np.array(tensors[name] / scale) for name, scale in zip((a, b), scales, strict=True)]
    if not all(c.size and c.ndim for c in codes):
        return {}
    first, second = (c.reshape(-1) for c in codes)
    terms = target.spec.error_model.terms
    alone = terms is not None and int(terms(variables(target.spec, case.shapes, case.attrs))) == 1
    first[: codes[0].shape[-1]] = odd if alone else 0
    first[0] = odd
    places = 0
    if "y" in case.ranges:
        places = round(math.log2(float(activation_of(target, case, "y").scale) / (scales[0] * scales[1])))
    period = 1 << max(places, 0)
    solved = [reach, reach]
    if 2 <= places <= target.scheme.activation.bits:
        sides = (1, -1) if key(seed, b) % 2 else (-1, 1)
        found = [_factor(odd, period // 2 + side, period, reach) for side in sides]
        away = [c for c, side in zip(found, sides, strict=True) if (odd * c // period) % 2 == (side < 0)]
        solved = [(away or found)[0], _factor(odd, period // 2, period, reach)]
    second[: len(solved)] = solved[: second.size]
    return {name: values * scale for name, values, scale in zip((a, b), codes, scales, strict=True)}


def _factor(odd: int, remainder: int, period: int, reach: int) -> int:
    """Return the largest code, *reach* at most, whose product with *odd* has a remainder modulo *period*, a power of two."""
    code = pow(odd, -1, period) * remainder % period
    return code + (reach - code) // period * period


def _every_code(target: Target, case: Case, name: str) -> Array:
    """Return the values of all codes in turn, or of codes from the first to the last, as far apart as the elements suffice."""
    if target.spec.inputs[name].role != "activation":
        return random(_site(target, case, name))
    params = activation_of(target, case, name)
    size = math.prod(case.shapes[name])
    span = params.qmax - params.qmin
    steps = np.arange(size) if size > span else np.arange(size) * span // max(size - 1, 1)
    codes = np.minimum(params.qmin + steps, params.qmax).reshape(case.shapes[name])
    values: Array = (codes - int(params.zero_point)) * float(params.scale)
    return values


def _small_codes(target: Target, case: Case, name: str) -> Array:
    params = activation_of(target, case, name)
    if target.spec.error_model.kind == "softmax":
        return np.zeros(case.shapes[name])
    if target.spec.error_model.kind == "mean":
        return _one_of_each_sum(target, case, name, params)
    spread, centre = SMALL_CODES, int(params.zero_point)
    if target.spec.error_model.kind == "normalization":
        signs = 1 - 2 * (np.indices(case.shapes[name]).sum(axis=0) % 2)
        return np.asarray(signs * DEVIATIONS[case.data.seed % len(DEVIATIONS)] * float(params.scale))
    if target.spec.error_model.kind == "index":
        spread = 1
        anywhere = integers(case.data.seed, f"{name}.centre", (1,), params.qmin, params.qmax)
        centre = (centre, params.qmin, params.qmax, int(anywhere[0]))[case.data.seed % 4]
    codes = integers(case.data.seed, name, case.shapes[name], -spread, spread) + centre
    return (np.clip(codes, params.qmin, params.qmax) - int(params.zero_point)) * float(params.scale)


def _one_of_each_sum(target: Target, case: Case, name: str, params: QParams) -> Array:
    """Return zeros but for one element of each sum, an odd multiple of what lies half way between two codes of its mean.

    Of n = 2**q * m terms, m odd, that is m where the output's step is 2**(1-q) of the input's (`ranges.output_range`), and
    n / 2 where both have one step.
    """
    shape, terms = case.shapes[name], mean_terms(target, case)
    axes = _mean_axes(target, case, name)
    at = [np.arange(size) == key(case.data.seed, name, str(axis)) % size for axis, size in enumerate(shape)]
    kept = np.ones(shape, dtype=bool)
    for axis in axes:
        kept &= at[axis].reshape([-1 if i == axis else 1 for i in range(len(shape))])
    odd = terms // (terms & -terms)
    half = terms // 2 if target.spec.quantization.family in target.platform.same_as_input else odd
    room = max(
        1, (min(params.qmax - int(params.zero_point), int(params.zero_point) - params.qmin) // max(half, 1) + 1) // 2
    )
    codes = half * (2 * integers(case.data.seed, name, shape, -room, room - 1) + 1)
    reach = min(params.qmax - int(params.zero_point), int(params.zero_point) - params.qmin)
    values: Array = np.where(kept, np.clip(codes, -reach, reach), 0) * float(params.scale)
    return values


def _mean_axes(target: Target, case: Case, name: str) -> tuple[int, ...]:
    """Return the axes that a mean reduces: its attribute, the error model's, those of an image, else none that is known."""
    if "axes" in case.attrs:
        return tuple(case.attrs["axes"])  # type: ignore[arg-type]
    rank, axis = len(case.shapes[name]), target.spec.error_model.axis
    if axis is not None:
        return (int(axis(variables(target.spec, case.shapes, case.attrs))) % rank,)
    return tuple(range(2, rank)) if target.spec.inputs[name].spatial else ()


def mean_terms(target: Target, case: Case) -> int:
    """Return the number of terms of a mean, or the places of a window."""
    bound = variables(target.spec, case.shapes, case.attrs)
    terms = target.spec.error_model.terms
    return max(
        1, math.prod(bound["kernel"]) if terms is None and "kernel" in bound else int(terms(bound)) if terms else 1
    )


def _tied_weights(target: Target, case: Case, name: str) -> Array:
    """Small codes and values half way between two; one per scale at the end of the range, which sets it."""
    part = target.weight
    largest = case.ranges[name][1]
    if part is None:
        return np.zeros(case.shapes[name])
    span = (1 << (part.bits - 1)) - 1 if part.range == "restricted" else ((1 << part.bits) - 1) / 2
    spread = min(SMALL_CODES, (1 << (part.bits - 1)) - 1)
    codes = integers(case.data.seed, name, case.shapes[name], -spread, spread)
    halves = integers(case.data.seed, f"{name}.halves", case.shapes[name], 0, 3) == 0
    values = np.where(halves & (np.abs(codes) < spread), codes + 0.5, codes) * (largest / span)
    channels = np.moveaxis(values, target.spec.inputs[name].channel_axis or 0, 0)
    if part.symmetry == "asymmetric":
        _set_ends(channels, largest / span, (1 << part.bits) - 1, key(case.data.seed, f"{name}.high"))
        return values
    one = values.ndim == 1 and part.granularity == "tensor"
    first: tuple[Any, ...] = (0,) if one else (slice(None), *[0] * (values.ndim - 1))
    channels[first] = largest
    return values


def _set_ends(channels: Array, unit: float, steps: int, seed: int) -> None:
    """Make *channels* a range of *steps* of one *unit* around 0, whose ends are in each channel; of single values, in all."""
    rows = channels.reshape(1 if channels[0].size == 1 else channels.shape[0], -1).copy()
    high = steps - SMALL_CODES if channels[0].size == 1 else steps * 3 // 8 + seed % (steps // 4 + 1)
    rows[:, 0] = high * unit
    rows[:, 1:][:, -1:] = (high - steps) * unit
    channels[...] = rows.reshape(channels.shape)


def _solved_bias(target: Target, case: Case, name: str, tensors: Mapping[str, Array]) -> Array:
    """Return the bias under which one element of each channel is a tie; zeros where the output range is not set yet.

    Some channels lie one accumulator unit beside the tie. A code that four divides is given half a step more: it rounds
    back to that code, if ties go to even.
    """
    shape = case.shapes[name]
    if "y" not in case.ranges:
        return np.zeros(shape)
    weight = next((n for n in tensors if target.spec.inputs[n].role == "weight"), None)
    if weight is None or target.spec.error_model.kind != "bilinear":
        return random(_site(target, case, name))
    scale, ratio, sums = _integer_sums(target, case, tensors, weight)
    bound = variables(target.spec, case.shapes, case.attrs)
    axis = channel_axis(target.spec, bound, sums.ndim) or 0
    flat = np.moveaxis(sums, axis, 0).reshape(sums.shape[axis], -1)
    picked = np.array([row[key(case.data.seed, name, str(c)) % row.size] for c, row in enumerate(flat)])
    period = np.maximum(np.round(1.0 / ratio), 2.0)
    channels = (flat.shape[0],)
    reach = max(3, (1 << (target.scheme.activation.bits - 1)) - 28)
    code = np.mod(period / 2 - picked, period) + period * integers(case.data.seed, name, channels, -reach, reach - 1)
    beside = integers(case.data.seed, f"{name}.beside", channels, -2, 2)
    code = np.where(np.abs(beside) == 2, code + beside // 2, np.where(code % 4 == 0, code + 0.5, code))
    code = code + _lost_product(target, case, tensors, weight)
    solved: Array = (code * scale).reshape(shape)
    return solved


def _lost_product(target: Target, case: Case, tensors: Mapping[str, Array], weight: str) -> float:
    """Return what a platform takes from each sum that absorbs zero points without the product of both, which a bias gives back."""
    part, x = target.weight, next(n for n in tensors if target.spec.inputs[n].role == "activation")
    absorbed = target.spec.quantization.family in target.platform.absorbs_zero_point
    if part is None or part.symmetry == "symmetric" or not absorbed:
        return 0.0
    weights = weight_params(torch.from_numpy(tensors[weight]), part, target.platform.parameters, None)
    each = tensors[weight].size // (case.shapes[weight][target.spec.inputs[weight].channel_axis or 0] or 1)
    return float(weights.zero_point) * float(activation_of(target, case, x).zero_point) * each


def _integer_sums(target: Target, case: Case, tensors: Mapping[str, Array], weight: str) -> tuple[Array, Array, Array]:
    """Return (bias step per channel, output codes per accumulator unit, accumulators without bias)."""
    x = next(n for n in tensors if target.spec.inputs[n].role == "activation")
    part = target.weight
    assert part is not None
    item = target.spec.inputs[weight]
    weights = weight_params(torch.from_numpy(tensors[weight]), part, target.platform.parameters, item.channel_axis)
    x_params, y_params = activation_of(target, case, x), activation_of(target, case, "y")
    step = weights.along(weights.scale, tensors[weight].ndim).numpy()
    operands = {
        x: torch.from_numpy(np.round(tensors[x] / float(x_params.scale))),
        weight: torch.from_numpy(np.round(tensors[weight] / step)),
    }
    sums = target.reference(operands, case).numpy()
    bound = variables(target.spec, case.shapes, case.attrs)
    axis = channel_axis(target.spec, bound, sums.ndim) or 0
    scale = np.resize(weights.scale.numpy(), (sums.shape[axis],)) * float(x_params.scale)
    return scale, scale / float(y_params.scale), sums


def activation_of(target: Target, case: Case, name: str) -> QParams:
    """Return the parameters that the platform's rule gives to activation or output *name*, signs aside."""
    low, high = case.ranges[name]
    sign = target.platform.parameters.activation_sign
    signed = low < 0.0 if sign == "by_range" else sign == "signed"
    return activation_params(low, high, target.scheme.activation, target.platform.parameters, signed=signed)
