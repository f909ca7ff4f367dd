"""Sums beside the steps of a room's own rule: found by asking its oracle, since no formula of the rule is known."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from quantizer.conformance.asking import entries_of, grid_of, ratio_of
from quantizer.conformance.oracle import Asked
from quantizer.conformance.target import Target
from quantizer.core.case import Case
from quantizer.core.rooms import loaded, oracle_of
from quantizer.core.shapes import variables
from quantizer.numerics.qparams import Parameters
from quantizer.ops import REGISTRY

Array = NDArray[Any]
STEPS = 48
"""Steps of each channel that are looked for, from the first code to the last."""


def has_own_rule(target: Target) -> bool:
    """Return whether the platform has its own integer forward, because its sums may have another unit."""
    own = REGISTRY.built_in(target.spec.op, "quantized", target.platform.places)
    return own is not None and own.platform is not None


def has_oracle(target: Target) -> bool:
    """Return whether the platform's room has an oracle of the operator's family."""
    return oracle_of(target.spec.quantization.family, target.platform.places) is not None


def beside_steps(target: Target, case: Case, parameters: Parameters, multipliers: Array) -> Array:
    """Return [channels, n] sums on both sides of steps of the oracle's codes; no sums if it takes more than sums."""
    out = parameters.outputs["y"]
    halves = np.linspace(out.qmin, out.qmax - 1, STEPS).round() - int(out.zero_point) + 0.5
    low, high = (np.floor((halves + side) / multipliers[:, None]).astype(np.int64) for side in (-0.5, 0.5))
    codes = functools.partial(_codes, target, case, parameters)
    try:
        return _bisected(codes, low, high)
    except Exception:  # noqa: BLE001 - an oracle that reads operands, too, cannot be asked about sums
        return np.zeros((multipliers.size, 0), np.int64)


def _bisected(codes: Callable[[Array], Array], low: Array, high: Array) -> Array:
    """Return neighbours between *low* and *high* whose codes differ."""
    first = codes(low)
    rises = codes(high) != first
    while (apart := high - low > 1).any():
        middle = low + (high - low) // 2
        above = codes(middle) != first
        low, high = np.where(apart & ~above, middle, low), np.where(apart & above, middle, high)
    return np.concatenate([np.where(rises, low, 0), np.where(rises, high, 0)], axis=1)


def _codes(target: Target, case: Case, parameters: Parameters, sums: Array) -> Array:
    """Return the oracle's codes of [channels, n] sums."""
    oracle = oracle_of(target.spec.quantization.family, target.platform.places)
    assert oracle is not None, "the room has an oracle of the family"
    rescale, requantize = parameters.rescale, target.platform.requantize
    tensors = {**parameters.inputs, **{name: held.params for name, held in parameters.constants.items()}}
    asked = Asked(
        target.spec.op,
        target.spec.quantization.family,
        target.platform,
        target.scheme,
        rescale.variant if rescale else requantize.get(target.spec.quantization.family, requantize["default"]),
        variables(target.spec, case.shapes, case.attrs),
        sums.shape,
        {},
        {name: grid_of(params) for name, params in tensors.items()},
        grid_of(parameters.outputs["y"]),
        ratio_of(parameters),
        entries_of(parameters),
        parameters.numbers,
        None,
        0,
        lambda: (sums, np.ones(sums.shape, np.int64)),
    )
    codes = np.asarray(loaded(oracle.codes)(asked))
    return codes.reshape(sums.shape)
