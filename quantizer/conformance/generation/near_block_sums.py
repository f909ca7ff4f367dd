"""Solves biases that put sums of blocks next to a tie, where float32 scales or sums give another code."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from quantizer.conformance.generation.hashing import key
from quantizer.conformance.generation.near_sums import as_bias, centred_codes, provided_for
from quantizer.conformance.target import Target
from quantizer.core.case import Case
from quantizer.numerics.qparams import Parameters

Array = NDArray[Any]
NEAREST = 2.0**-30
"""A sum that is nearer to a tie is left out: float64 does not say on which side it lies."""
KINDS = 3
"""The number of float32 arithmetics that a sum may get another code in."""
ROWS = 16
"""The number of sums of a channel that are tried."""


def is_near_block_sum(target: Target) -> bool:
    """Return whether a bias can place sums of blocks next to a tie."""
    roles = [item.role for item in target.spec.inputs.values()]
    return target.scheme.grid == "blocks" and "weight" in roles and "bias" in roles


def solved_beside_blocks(target: Target, case: Case, name: str, tensors: Mapping[str, Array]) -> Array:
    """Return biases, one per channel: each puts one sum of its channel where a float32 arithmetic gives another code.

    *tensors*: the other operands, as real values of their codes. A channel without such a sum has no bias.
    """
    parameters = provided_for(target, case, {**tensors, name: np.zeros(case.shapes[name])})
    rescale = parameters.rescale
    assert rescale is not None
    sums = sums_of_blocks(target, case, tensors, parameters)
    codes = np.zeros(len(sums))
    for channel, rows in enumerate(sums):
        first = key(case.data.seed, name, str(channel)) % len(rows)
        tried = np.roll(rows, -first, axis=0)[:ROWS]
        multipliers = rescale.mantissa[channel].numpy()
        # a sum next to no tie in the channel's own arithmetic may be next to one in another
        each = (
            _beside(parts, multipliers, parameters, (channel + further) % KINDS)
            for further in range(KINDS)
            for parts in tried
        )
        found = next((constants for constants in each if constants.size), None)
        if found is not None:
            codes[channel] = found[key(case.data.seed, name, "place", str(channel)) % found.size]
    return as_bias(parameters, case, name, codes)


def differs_in_float32(target: Target, case: Case, values: Mapping[str, Array], parameters: Parameters) -> bool:
    """Return whether some sum of *values* gets another code in a float32 arithmetic."""
    rescale = parameters.rescale
    assert rescale is not None
    held = {name: each for name, each in values.items() if target.spec.inputs[name].role != "bias"}
    bias = parameters.constants.get("bias")
    constants = np.zeros(1) if bias is None else bias.codes.double().numpy()
    for channel, rows in enumerate(sums_of_blocks(target, case, held, parameters)):
        terms = np.concatenate([rows, np.full((len(rows), 1), constants[channel % constants.size])], 1)
        if unlike(terms, rescale.mantissa[channel].numpy(), rescale.divisor).any():
            return True
    return False


def unlike(terms: Array, multipliers: Array, divisor: float, kinds: Sequence[int] = tuple(range(KINDS))) -> Array:
    """Return for [n, blocks] *terms* whether a float32 arithmetic gives their sum another code."""
    exactly = in_order(terms, multipliers) / divisor
    single = [in_float32(terms, multipliers, divisor, kind=kind) for kind in kinds]
    off = np.abs(np.abs(exactly % 1.0) - 0.5) > NEAREST
    return np.asarray(np.any([np.rint(exactly) != np.rint(each) for each in single], axis=0) & off)


def in_float32(terms: Array, multipliers: Array, divisor: float, *, kind: int) -> Array:
    """Return [n] sums of [n, blocks] *terms* in steps of the output, in one of KINDS float32 arithmetics.

    0: each product and each sum is rounded, one block after the other. 1: only the ratios of scales are rounded. 2:
    only the products of scales.
    """
    if kind == 0:
        products = terms.astype(np.float32) * multipliers.astype(np.float32)
        return np.asarray(np.add.accumulate(products, axis=1, dtype=np.float32)[:, -1] / np.float32(divisor))
    unit = divisor if kind == 1 else 1.0
    rounded = (multipliers / unit).astype(np.float32).astype(np.float64)
    return np.asarray(in_order(terms, rounded) * unit / divisor)


def in_order(terms: Array, multipliers: Array) -> Array:
    """Return the sums of [..., blocks] *terms* times *multipliers*, one block after the other, in float64.

    A matrix product of a library adds in an order that the processor decides, and with it the case.
    """
    return np.asarray(np.add.accumulate(terms * multipliers, axis=-1)[..., -1])


def _beside(parts: Array, multipliers: Array, parameters: Parameters, kind: int) -> Array:
    """Return the constants with which the sum of *parts* gets another code in float32 arithmetic *kind*."""
    out, rescale = parameters.outputs["y"], parameters.rescale
    assert rescale is not None
    halves = np.arange(out.qmin, out.qmax) - int(out.zero_point) + 0.5
    wanted = (halves * rescale.divisor - in_order(parts, multipliers[:-1])) / multipliers[-1]
    constants = np.unique(np.floor(wanted)[:, None] + (0, 1))
    terms = np.concatenate([np.broadcast_to(parts, (constants.size, parts.size)), constants[:, None]], 1)
    return np.asarray(constants[unlike(terms, multipliers, rescale.divisor, (kind,))])


def sums_of_blocks(target: Target, case: Case, tensors: Mapping[str, Array], parameters: Parameters) -> Array:
    """Return [channels, rows, blocks] exact sums."""
    centred = centred_codes(target, tensors, parameters)
    name = next(n for n in tensors if target.spec.inputs[n].role == "weight")
    params = parameters.constants[name].params
    assert params.blocks is not None
    axis = params.blocks.axis
    found = []
    for _, start, stop in params.blocks.spans(centred[name].shape[axis]):
        alone = centred[name].clone()
        alone.narrow(axis, 0, start).zero_()
        alone.narrow(axis, stop, alone.shape[axis] - stop).zero_()
        found.append(target.reference({**centred, name: alone}, case).numpy())
    sums = np.stack(found, -1)
    assert parameters.rescale is not None
    channels = (parameters.rescale.axis or 0) % (sums.ndim - 1)
    return np.moveaxis(sums, channels, 0).reshape(sums.shape[channels], -1, len(found))
