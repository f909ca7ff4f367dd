"""The data set `ties`: values whose sums lie exactly between two codes, or one unit away."""

from __future__ import annotations

import math
from collections.abc import Mapping
from fractions import Fraction
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from quantizer.conformance.generation.fillers import random, site_of
from quantizer.conformance.generation.hashing import Seeds, integers, key
from quantizer.conformance.generation.near_block_sums import is_near_block_sum, solved_beside_blocks
from quantizer.conformance.generation.near_sums import is_near_sum, on_grid, solved_near_bias
from quantizer.conformance.generation.ranges import activation_of
from quantizer.conformance.generation.room_sums import has_own_rule
from quantizer.conformance.generation.staged_ties import is_searched, solved_stages
from quantizer.conformance.generation.tied_operands import (
    is_quotient,
    is_wide_product,
    solved_product,
    solved_quotient,
)
from quantizer.conformance.generation.tied_weights import SMALL_CODES, tied_weights
from quantizer.conformance.generation.weight_blocks import uneven_blocks
from quantizer.conformance.grids import decoded, listed, positions
from quantizer.conformance.target import Target
from quantizer.core.case import Case
from quantizer.core.formats import FLOAT_LAYOUTS
from quantizer.core.shapes import Shape, channel_axis, variables
from quantizer.numerics.qparams import QParams
from quantizer.numerics.quantize import centred, quantize
from quantizer.numerics.rules import weight_params

Array = NDArray[Any]
FLOAT_CODES = 20
"""Distance, in codes, from the code of 1 within which tied elements of a narrow float lie."""
DEVIATIONS = (SMALL_CODES, 1, 2)
"""Distances, in codes, of tied elements of a normalisation from their mean. They are small, because one unit more or
less changes a large variance too little to be seen."""
FLOAT16_UNIT = 2.0**-13
"""A quarter of the relative distance of float16 numbers."""
NEAREST = 16
"""The number of codes next to a tie from which a case chooses."""
SOLVED = ("softmax", "mean", "product", "euclidean", "normalization", "index", "comparison", "poles")
"""Error models whose ties are not small codes from a seed alone."""
FLOAT64_TIE = 2.0**-32
"""Distance from a tie, in codes, below which float64 cannot prove that a value is not a tie."""


def ties(target: Target, case: Case) -> dict[str, Array]:
    """Return values whose codes are small integers under power-of-two scales, and a bias solved for a tie.

    If all scales are powers of two, the accumulator is multiplied by 2**-m. So a sum with remainder 2**(m-1) modulo
    2**m lies exactly between two codes. Each channel's bias puts one hashed element of the channel there.
    """
    tensors: dict[str, Array] = {}
    for name in case.shapes:
        item = target.spec.inputs[name]
        if item.kind == "real":
            tensors[name] = _halves(target, case, name)
        elif item.role == "activation":
            tensors[name] = _small_codes(target, case, name)
        elif item.role == "weight":
            tensors[name] = tied_weights(target, case, name)
    for name in case.shapes:
        if target.spec.inputs[name].role == "bias":
            tensors[name] = _solved_bias(target, case, name, tensors)
    if is_quotient(target):
        tensors |= solved_quotient(target, case)
    # half of the cases keep the small codes drawn above
    if case.data.seed % 2 and is_wide_product(target):
        tensors |= solved_product(target, case, tensors)
    tensors |= solved_stages(target, case)
    return {name: tensors[name] for name in case.shapes}


def _halves(target: Target, case: Case, name: str) -> Array:
    """Return real numbers half way between two output codes, including some below the first and above the last code.

    While the output has no range yet, return whole numbers, from which a range is calibrated.
    """
    if "y" not in case.ranges:
        return integers(case.data.seed, name, case.shapes[name], -SMALL_CODES, SMALL_CODES).astype(np.float64)
    params = activation_of(target, case, "y")
    codes = integers(case.data.seed, name, case.shapes[name], params.qmin - 2, params.qmax + 1)
    return np.asarray((codes + 0.5 - int(params.zero_point)) * float(params.scale))


def _small_codes(target: Target, case: Case, name: str) -> Array:
    params = activation_of(target, case, name)
    if target.spec.error_model.kind == "softmax":
        # equal exponentials: each output is 1 / terms, which is half a code of the range that `output_range` gives
        return np.zeros(case.shapes[name])
    if target.spec.error_model.kind == "mean":
        return _one_of_each_sum(target, case, name, params)
    if target.spec.error_model.kind in ("product", "euclidean"):
        return _one_of_each_fold(target, case, name, params)
    if listed(params) is not None:
        return _values_of_floats(case, name, params)
    spread, centre = _spread(target), int(params.zero_point)
    if target.spec.error_model.kind == "normalization":
        # neighbours along every axis have opposite signs, so the mean is 0 or near it, whichever axes are normalised
        signs = 1 - 2 * (np.indices(case.shapes[name]).sum(axis=0) % 2)
        return np.asarray(signs * DEVIATIONS[case.data.seed % len(DEVIATIONS)] * float(params.scale))
    if target.spec.error_model.kind == "index":
        # the place of the first or the last of several equal elements is the result, so equal elements must be frequent
        spread = 1
        anywhere = integers(case.data.seed, f"{name}.centre", (1,), params.qmin, params.qmax)
        centre = (centre, params.qmin, params.qmax, int(anywhere[0]))[case.data.seed % 4]
    values = _around(params, case.data.seed, name, case.shapes[name], spread, centre)
    if target.spec.error_model.kind == "comparison":
        # [:1], because a tensor may have no elements
        values.reshape(-1)[:1] = _compared(target, case, name)
    return values


def _around(params: QParams, seed: Seeds, name: str, shape: Shape, spread: int, centre: int) -> Array:
    """Return values of codes at most *spread* away from *centre*; with several seeds, one tensor for each."""
    codes = integers(seed, name, shape, -spread, spread) + centre
    values: Array = (np.clip(codes, params.qmin, params.qmax) - int(params.zero_point)) * float(params.scale)
    return values


def ties_of_seeds(target: Target, case: Case, name: str, seeds: tuple[int, ...]) -> Array | None:
    """Return activation *name* of `ties` for each seed, along a first axis; None where more than a seed decides it."""
    if target.spec.inputs[name].kind == "real" or target.spec.error_model.kind in SOLVED:
        return None
    params = activation_of(target, case, name)
    if listed(params) is not None or is_wide_product(target) or is_searched(target, case):
        return None
    return _around(params, seeds, name, case.shapes[name], _spread(target), int(params.zero_point))


def _spread(target: Target) -> int:
    """Return the largest distance of a code from its zero point.

    Where a platform rounds twice, it is two output codes in units of the first rounding, and at most half of all codes.
    """
    first = target.platform.first_rounding
    if first is None:
        return SMALL_CODES
    return max(SMALL_CODES, min(2 << first.fraction_bits, 1 << (target.scheme.activation.bits - 1)))


def _values_of_floats(case: Case, name: str, params: QParams) -> Array:
    """Return values near 1. Their sums do not fit the format, and are ties of a coarser output.

    Every second case has values around the smallest normal number, to detect kernels that flush smaller numbers to
    zero.
    """
    layout = FLOAT_LAYOUTS[params.dtype.name]
    # codes of a float count its values from 0: the first with an exponent of 1 is the smallest normal number
    one = (1 << layout.mantissa_bits) if case.data.seed % 2 else round(float(positions(np.array(1.0), params)))
    codes = one + integers(case.data.seed, name, case.shapes[name], -FLOAT_CODES, FLOAT_CODES)
    signs = 2 * integers(case.data.seed, f"{name}.sign", case.shapes[name], 0, 1) - 1
    return np.asarray(signs * decoded(np.clip(codes, 0, params.qmax), params) * float(params.scale))


def _compared(target: Target, case: Case, name: str) -> float:
    """Return the first value of a compared operand. Both operands have the same value there: one step, or 0.

    In every second element, the second operand's float is slightly larger or smaller: by less than float16 resolves,
    and by too little to change its code.
    """
    known = {other: activation_of(target, case, other) for other in target.spec.activations}
    step = max(float(params.scale) for params in known.values())
    fits = all(step <= float(params.scale) * int(params.qmax - params.zero_point) for params in known.values())
    beside = (0, 1, 0, -1)[case.data.seed % 4] if name != target.spec.activations[0] else 0
    return step * (1.0 + FLOAT16_UNIT * beside) if fits else 0.0


def _one_of_each_sum(target: Target, case: Case, name: str, params: QParams) -> Array:
    """Return zeros except one element of each sum, which is an odd multiple of half a code of the mean.

    With n = 2**q * m terms, m odd, half a code of the mean is m if the output's step is 2**(1-q) times the input's
    (`ranges.output_range`), and n / 2 if both steps are equal.
    """
    shape, terms = case.shapes[name], mean_terms(target, case)
    kept = _picked(target, case, name)
    # terms & -terms is the largest power of two that divides the number of terms
    odd = terms // (terms & -terms)
    half = terms // 2 if target.spec.quantization.family in target.platform.same_as_input else odd
    # the number of odd multiples of `half` among the codes on one side of the zero point
    room = max(
        1, (min(params.qmax - int(params.zero_point), int(params.zero_point) - params.qmin) // max(half, 1) + 1) // 2
    )
    codes = half * (2 * integers(case.data.seed, name, shape, -room, room - 1) + 1)
    reach = min(params.qmax - int(params.zero_point), int(params.zero_point) - params.qmin)
    values: Array = np.where(kept, np.clip(codes, -reach, reach), 0) * float(params.scale)
    return values


def near_ties(target: Target, case: Case) -> dict[str, Array]:
    """Return zeros except for one element of each sum.

    That element is a code whose value, in steps of the output, lies near a tie but not on it; any code while the output
    has no range. Sums of products get random values, and biases that are solved for a sum next to a tie.
    """
    if is_near_sum(target) or is_near_block_sum(target):
        return _near_products(target, case)
    ((name, shape),) = case.shapes.items()
    params = activation_of(target, case, name)
    codes = np.arange(1, min(params.qmax - int(params.zero_point), int(params.zero_point) - params.qmin) + 1)
    if "y" in case.ranges:
        ratio = float(params.scale) / (float(activation_of(target, case, "y").scale) * mean_terms(target, case))
        beside = np.abs(codes * ratio % 1.0 - 0.5)
        # codes on a tie belong to the data set `ties`; the nearest of the rest show small errors of a multiplier
        off = codes[beside > FLOAT64_TIE]
        codes = off[np.argsort(beside[beside > FLOAT64_TIE], kind="stable")][:NEAREST]
    if not codes.size:  # a zero point at an end of the codes, or ratios that put every code on a tie
        return {name: random(site_of(target, case, name))}
    signs = 2 * integers(case.data.seed, f"{name}.sign", shape, 0, 1) - 1
    drawn = signs * codes[integers(case.data.seed, name, shape, 0, codes.size - 1)]
    values: Array = np.where(_picked(target, case, name), drawn, 0) * float(params.scale)
    return {name: values}


def _near_products(target: Target, case: Case) -> dict[str, Array]:
    drawn = {name: random(site_of(target, case, name)) for name in case.shapes}
    tensors = {name: uneven_blocks(target, case, name, values) for name, values in drawn.items()}
    biases = [name for name in tensors if target.spec.inputs[name].role == "bias"]
    if "y" not in case.ranges or not biases:
        return tensors
    others = on_grid(target, case, {name: values for name, values in tensors.items() if name not in biases})
    solved = solved_beside_blocks if is_near_block_sum(target) else solved_near_bias
    return others | {name: solved(target, case, name, others) for name in biases}


def _one_of_each_fold(target: Target, case: Case, name: str, params: QParams) -> Array:
    """Return ones with one other factor in each product, or zeros with one other value under each root.

    That element is an odd multiple of half a code of the result: the product or root equals it, and the output's step
    is a power of two times its unit.
    """
    product, scale = target.spec.error_model.kind == "product", float(params.scale)
    reach = min(params.qmax - int(params.zero_point), int(params.zero_point) - params.qmin)
    half = 1
    if "y" in case.ranges:
        unit = Fraction(scale) ** (mean_terms(target, case) if product else 1)
        half = min(max(round(Fraction(float(activation_of(target, case, "y").scale)) / unit) // 2, 1), reach + 1)
    room = max((reach // half + 1) // 2, 1)
    odd = 2 * integers(case.data.seed, name, case.shapes[name], -room, room - 1) + 1
    codes = np.where(_picked(target, case, name), np.clip(half * odd, -reach, reach), int(product))
    values: Array = codes * scale
    return values


def _picked(target: Target, case: Case, name: str) -> Array:
    """Return where one element of each sum lies, the same place along each axis that is reduced."""
    shape = case.shapes[name]
    at = [np.arange(size) == key(case.data.seed, name, str(axis)) % size for axis, size in enumerate(shape)]
    kept = np.ones(shape, dtype=bool)
    for axis in _mean_axes(target, case, name):
        # [1, ..., size, ..., 1], so that the places of all reduced axes are combined by broadcasting
        kept &= at[axis].reshape([-1 if i == axis else 1 for i in range(len(shape))])
    return kept


def _mean_axes(target: Target, case: Case, name: str) -> tuple[int, ...]:
    """Return the axes that a mean reduces: from its attribute, its error model or its image; empty if unknown."""
    if "axes" in case.attrs:
        return tuple(case.attrs["axes"])  # type: ignore[arg-type]
    rank, model = len(case.shapes[name]), target.spec.error_model
    axis = None if model.kind == "linear" else model.axis
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


def _solved_bias(target: Target, case: Case, name: str, tensors: Mapping[str, Array]) -> Array:
    """Return the bias that makes one element of each channel a tie; zeros while the output has no range yet.

    Without weights or sums of products, return random values. The sums of some channels lie one accumulator unit beside
    the tie. A bias code that is a multiple of 4 gets half a step more: half-even rounding returns it to that code.
    """
    shape = case.shapes[name]
    if "y" not in case.ranges:
        return np.zeros(shape)
    weight = next((n for n in tensors if target.spec.inputs[n].role == "weight"), None)
    if weight is None or target.spec.error_model.kind != "bilinear":
        return random(site_of(target, case, name))
    scale, ratio, sums = _integer_sums(target, case, tensors, weight)
    bound = variables(target.spec, case.shapes, case.attrs)
    axis = channel_axis(target.spec, bound, sums.ndim) or 0
    flat = np.moveaxis(sums, axis, 0).reshape(sums.shape[axis], -1)
    picked = np.array([row[key(case.data.seed, name, str(c)) % row.size] for c, row in enumerate(flat)])
    # accumulator units per output code; below 2 there is no unit half way
    period = np.maximum(np.round(1.0 / ratio), 2.0)
    channels = (flat.shape[0],)
    reach = max(3, (1 << (target.scheme.activation.bits - 1)) - 28)
    # the smallest bias that gives the remainder, then whole output codes on top of it, so that results differ
    code = np.mod(_remainder(target, case, period) - picked, period)
    code = code + period * integers(case.data.seed, name, channels, -reach, reach - 1)
    beside = integers(case.data.seed, f"{name}.beside", channels, -2, 2)
    code = np.where(np.abs(beside) == 2, code + beside // 2, np.where(code % 4 == 0, code + 0.5, code))
    code = code + _lost_product(target, case, tensors, weight)
    solved: Array = (code * scale).reshape(shape)
    return solved


def _remainder(target: Target, case: Case, period: Array) -> Array:
    """Return the remainder that a sum on a tie leaves modulo one output code, in accumulator units.

    It is half a code, or, where the platform rounds twice, a tie of the first rounding near half a code.

    Half of the cases of such a platform have the latter, but none if the room has its own rule.
    """
    first = target.platform.first_rounding
    if first is None or case.data.seed % 2 or has_own_rule(target):
        return period / 2
    side = 1 if case.data.seed % 4 else -1
    return np.floor(period / 2 + side * period / (2 << first.fraction_bits))


def _lost_product(target: Target, case: Case, tensors: Mapping[str, Array], weight: str) -> float:
    """Return what each sum lacks on a platform that leaves the product of both zero points out of the bias.

    The solved bias adds it, so that the sums are ties nevertheless.
    """
    part, x = target.weight, next(n for n in tensors if target.spec.inputs[n].role == "activation")
    absorbed = target.spec.quantization.family in target.platform.absorbs_zero_point
    if part is None or part.symmetry == "symmetric" or not absorbed:
        return 0.0
    weights = weight_params(torch.from_numpy(tensors[weight]), part, target.platform.parameters, None)
    each = tensors[weight].size // (case.shapes[weight][target.spec.inputs[weight].channel_axis or 0] or 1)
    return float(weights.zero_point) * float(activation_of(target, case, x).zero_point) * each


def _integer_sums(target: Target, case: Case, tensors: Mapping[str, Array], weight: str) -> tuple[Array, Array, Array]:
    """Return the bias step per channel, the output codes per accumulator unit, and the accumulators without a bias."""
    x = next(n for n in tensors if target.spec.inputs[n].role == "activation")
    part = target.weight
    assert part is not None
    item = target.spec.inputs[weight]
    weights = weight_params(
        torch.from_numpy(tensors[weight]),
        part,
        target.platform.parameters,
        item.channel_axis,
        block_axis=item.block_axis,
    )
    x_params, y_params = activation_of(target, case, x), activation_of(target, case, "y")
    operands = {
        # centred codes: products of these are the terms of the accumulator
        x: torch.from_numpy(np.round(tensors[x] / float(x_params.scale))),
        weight: _centred_weights(target, tensors[weight], weights),
    }
    sums = target.reference(operands, case).numpy()
    bound = variables(target.spec, case.shapes, case.attrs)
    axis = channel_axis(target.spec, bound, sums.ndim) or 0
    scale = np.resize(weights.coarsest().scale.numpy(), (sums.shape[axis],)) * float(x_params.scale)
    return scale, scale / float(y_params.scale), sums


def _centred_weights(target: Target, values: Array, params: QParams) -> Tensor:
    """Return the weights' codes minus their zero points, by the platform's own quantizer: half a step is a tie."""
    if params.dtype.kind == "float":
        return torch.from_numpy(np.round(values / params.spread(params.scale, values.shape).numpy()))
    return centred(quantize(torch.from_numpy(values).float(), params, target.platform.quantizer), params).double()
