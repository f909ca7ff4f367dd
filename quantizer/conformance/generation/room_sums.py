"""Sums beside the steps of a room's own rule. They are found by asking its oracle, since no formula is known here."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from quantizer.conformance.asking import entries_of, grid_of, ratio_of
from quantizer.conformance.generation.hashing import integers
from quantizer.conformance.oracle import Asked
from quantizer.conformance.target import Target
from quantizer.core.case import Case
from quantizer.core.rooms import loaded, oracle_of
from quantizer.core.shapes import variables
from quantizer.numerics.qparams import Parameters, QParams
from quantizer.numerics.quantize import quantize
from quantizer.ops import REGISTRY

Array = NDArray[Any]
STEPS = 48
"""The largest number of steps that are searched per channel, spread from the first code to the last."""


def has_own_rule(target: Target) -> bool:
    """Return whether the platform has its own integer forward, because its sums may have another unit."""
    own = REGISTRY.built_in(target.spec.op, "quantized", target.platform.places)
    return own is not None and own.platform is not None


def has_oracle(target: Target) -> bool:
    """Return whether the platform's room has an oracle of the operator's family."""
    return oracle_of(target.spec.quantization.family, target.platform.places) is not None


def beside_steps(target: Target, case: Case, parameters: Parameters, multipliers: Array) -> Array:
    """Return [channels, n] sums on both sides of steps of the oracle's codes; none if it needs more than sums."""
    out = parameters.outputs["y"]
    halves = np.linspace(out.qmin, out.qmax - 1, STEPS).round() - int(out.zero_point) + 0.5
    low, high = _around(halves, multipliers[:, None])
    codes = functools.partial(_codes, target, case, parameters)
    try:
        return _bisected(codes, low, high)
    except Exception:  # noqa: BLE001 - an oracle that reads operands, too, cannot be asked about sums
        return np.zeros((multipliers.size, 0), np.int64)


@dataclass(frozen=True)
class Biased:
    """A case whose sums are moved by a bias, for an oracle that also reads the operands."""

    target: Target
    case: Case
    parameters: Parameters
    name: str
    """The bias."""
    operands: Mapping[str, Array]
    """Real values of the other operands."""
    sums: Array
    """The sums without a bias."""
    axis: int
    places: Array
    """The element of each channel that is to lie beside a step."""

    @property
    def picked(self) -> Array:
        """The sum of each channel at its picked element."""
        return self._at_places(self.sums)

    def beside_steps(self, multipliers: Array) -> Array:
        """Return [channels, 2] sums of the picked elements on both sides of a step; none if the oracle fails."""
        out, channels = self.parameters.outputs["y"], (multipliers.size,)
        steps = integers(self.case.data.seed, f"{self.name}.step", channels, out.qmin, out.qmax - 1)
        low, high = _around(steps - int(out.zero_point) + 0.5, multipliers)
        try:
            return _bisected(lambda sums: self._codes(sums[:, 0])[:, None], low[:, None], high[:, None])
        except Exception:  # noqa: BLE001 - an oracle may cover other cases only
            return np.zeros((multipliers.size, 0), np.int64)

    def _codes(self, wanted: Array) -> Array:
        """Return the oracle's codes of the picked elements if their sums are *wanted*."""
        bias = (wanted - self.picked).astype(np.int64)
        whole = self.sums.astype(np.int64) + bias.reshape([-1 if i == self.axis else 1 for i in range(self.sums.ndim)])
        codes = {**self._operands, self.name: bias.reshape(self.case.shapes[self.name])}
        return self._at_places(_asked(self.target, self.case, self.parameters, whole, codes, self.axis))

    @functools.cached_property
    def _operands(self) -> dict[str, Array]:
        quantizer = self.target.platform.quantizer
        grids = {name: _params(self.parameters, name) for name in self.operands}
        values = {name: torch.from_numpy(each).float() for name, each in self.operands.items()}
        return {name: quantize(values[name], grids[name], quantizer).numpy() for name in grids}

    def _at_places(self, values: Array) -> Array:
        flat = np.moveaxis(values, self.axis, 0).reshape(values.shape[self.axis], -1)
        return flat[np.arange(len(flat)), self.places]


def _params(parameters: Parameters, name: str) -> QParams:
    return parameters.inputs.get(name) or parameters.constants[name].params


def _around(halves: Array, multipliers: Array) -> tuple[Array, Array]:
    """Return the sums half a code below and half a code above *halves*."""
    low, high = (np.floor((halves + side) / multipliers).astype(np.int64) for side in (-0.5, 0.5))
    return low, high


def _bisected(codes: Callable[[Array], Array], low: Array, high: Array) -> Array:
    """Return neighbours between *low* and *high* whose codes differ."""
    # codes are monotone in the sums, so that bisection finds a place where they change
    first = codes(low)
    rises = codes(high) != first
    while (apart := high - low > 1).any():
        middle = low + (high - low) // 2
        above = codes(middle) != first
        low, high = np.where(apart & ~above, middle, low), np.where(apart & above, middle, high)
    # 0 where both ends have one code and no step was found
    return np.concatenate([np.where(rises, low, 0), np.where(rises, high, 0)], axis=1)


def _codes(target: Target, case: Case, parameters: Parameters, sums: Array) -> Array:
    """Return the oracle's codes of [channels, n] sums."""
    return _asked(target, case, parameters, sums, {}, 0)


def _asked(
    target: Target, case: Case, parameters: Parameters, sums: Array, operands: Mapping[str, Array], channels: int
) -> Array:
    """Return the oracle's codes of *sums*, whose axis *channels* the multipliers follow."""
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
        operands,
        {name: grid_of(params) for name, params in tensors.items()},
        grid_of(parameters.outputs["y"]),
        ratio_of(parameters),
        entries_of(parameters),
        parameters.numbers,
        None,
        channels,
        # sums, and terms of 1, so that nothing is divided
        lambda: (sums, np.ones(sums.shape, np.int64)),
    )
    codes = np.asarray(loaded(oracle.codes)(asked))
    return codes.reshape(sums.shape)
