"""The codes of constants in the check `parameters`: weights, biases, and biases that hold a zero point's share."""

from __future__ import annotations

import math
from collections.abc import Iterator
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from quantizer.conformance.bounds.rounding import code_interval, rational_codes
from quantizer.conformance.checks.declared_quantizer import declared_codes
from quantizer.conformance.checks.held_biases import effective_bits, zero_point_share
from quantizer.conformance.checks.multiplier_rules import (
    FLOAT32_CODES,
    is_replaced,
)
from quantizer.conformance.expected import weights as expected_weights
from quantizer.conformance.expected.parameters import Expected
from quantizer.conformance.trials.elements import place_of_largest
from quantizer.conformance.trials.finding import Finding
from quantizer.conformance.trials.trial import Trial
from quantizer.core.platform_settings import Quantizer

Array = NDArray[Any]


def code_findings(trial: Trial, name: str, got: Array, wanted: Expected, axis: int | None) -> Iterator[Finding]:
    """Judge that codes are nearest to the clamped floats; exact ties are rounded in the declared mode."""
    values = trial.tensors[name].double().numpy()
    if got.shape != values.shape:
        yield Finding(name, math.inf, f"codes of shape {values.shape}", f"{got.shape}", "one code per value")
        return
    if not values.size:
        return
    scale, zero = (_spread(part, values.shape, axis, wanted.blocks) for part in (wanted.scale, wanted.zero_point))
    quantizer = trial.target.platform.quantizer
    exact = values / scale
    slack = 0.0 if quantizer.operation == "exact" else FLOAT32_CODES * np.abs(exact)
    # the error of the float64 quotient
    slack = slack + 2.0**-45 * np.abs(exact)
    # beyond the codes the end code is right: the clipped value lies within half a step of it
    real = np.clip(exact, wanted.qmin - zero - 0.49, wanted.qmax - zero + 0.49)
    away = np.abs(got - zero - real)
    ratio = np.where(
        (got == wanted.qmin) & (exact <= wanted.qmin - zero) | (got == wanted.qmax) & (exact >= wanted.qmax - zero),
        0.0,
        away / (0.5 + slack),
    )
    ratio = np.where((got < wanted.qmin) | (got > wanted.qmax), math.inf, ratio)
    steps = None if wanted.steps is None else _spread(wanted.steps, values.shape, axis, wanted.blocks)
    if (right := _declared(trial, name, values, scale, steps, zero, wanted)) is not None:
        # a code that the declared float32 steps give passes, even if it is more than half a step away
        ratio = np.where(np.any([got == codes for codes in right], axis=0), np.minimum(ratio, 1.0), math.inf)
    elif quantizer.rounding.startswith("half"):
        ratio = np.maximum(ratio, _tie_faults(exact, got, np.broadcast_to(zero, values.shape), trial, wanted))
    else:
        ratio = _directed(exact, slack, got, np.broadcast_to(zero, values.shape), quantizer, wanted)
    index = place_of_largest(ratio)
    yield Finding(
        name,
        float(ratio[index]),
        f"{exact[index]:.9g} + {int(np.broadcast_to(zero, values.shape)[index])}",
        f"code {int(got[index])}",
        "the nearest code, ties by the declared mode",
        index,
    )


def _declared(
    trial: Trial, name: str, values: Array, scale: Array, steps: Array | None, zero: Array, wanted: Expected
) -> list[Array] | None:
    """Return the possible codes of each number of a weight under the declared float32 quantizer; None for a bias.

    A plugin may multiply the same two numbers exactly. The scale of a bias is a product, which float32 forms in some
    order: near a tie it has two codes.
    """
    if trial.spec.inputs[name].role != "weight":
        return None
    scale, zero = (np.broadcast_to(part, values.shape) for part in (scale, zero))
    steps = None if steps is None else np.broadcast_to(steps, values.shape)
    ends = wanted.qmin, wanted.qmax
    quantizer = trial.target.platform.quantizer
    return declared_codes(values, scale, steps, zero, quantizer, ends, exact=is_replaced(trial))


def _directed(exact: Array, slack: Array, got: Array, zero: Array, quantizer: Quantizer, wanted: Expected) -> Array:
    """Return the distance of each value from its code in steps; infinite if rounded against the declared direction."""
    low, high = code_interval(
        exact,
        e_over_s=slack,
        zero_point=zero,
        qmin=wanted.qmin,
        qmax=wanted.qmax,
        rounding=quantizer.rounding,
        zero_point_first=quantizer.zero_point == "before",
    )
    inside = (got >= low) & (got <= high)
    return np.where(inside, np.minimum(np.abs(got - zero - exact), 1.0), math.inf)


def held_bias_findings(trial: Trial, name: str, got: Array, wanted: Expected, weight: str) -> Iterator[Finding]:
    """Judge a bias that the platform stores together with the input zero point's share of the sums: equal codes.

    A plugin may round its scales in another order, and may leave a saturated bias at the end of the code range.
    """
    values = trial.tensors[name].numpy()
    added = zero_point_share(trial, weight, values.size)
    if added is None or got.shape != values.shape:
        yield Finding(name, math.inf, f"codes of shape {values.shape}", f"{got.shape}", "one code per value")
        return
    if not values.size:
        return
    bits = wanted.dtype.bits
    exact = expected_weights.held_bias(values, np.asarray(wanted.steps), added, bits, effective_bits(trial, bits))
    away, room = np.abs(got - exact).astype(np.float64), np.full(values.shape, 0.5)
    if is_replaced(trial):
        real = np.clip(values.astype(np.float64) / wanted.scale, wanted.qmin - 0.49, wanted.qmax + 0.49)
        held = np.abs(exact + added)
        # at the end of the codes, the order of float32 operations decides whether the sum saturates
        at_end = held >= 2.0 ** (bits - 1) * (1 - FLOAT32_CODES)
        # above 2**24 float32 no longer holds every integer
        moved = np.abs(exact - np.rint(real)) + np.where(held >= 2.0**24, FLOAT32_CODES * held, 0.0)
        strict = ~at_end & _is_exact(wanted, trial.target.platform.quantizer.operation)
        away = np.where(strict, away, np.abs(got - real))
        room = np.where(strict, room, room + FLOAT32_CODES * np.abs(real) + moved + np.where(at_end, np.abs(added), 0))
    ratio = away / room
    ratio = np.where((got < wanted.qmin) | (got > wanted.qmax), math.inf, ratio)
    index = (int(np.argmax(ratio)),)
    yield Finding(
        name,
        float(ratio[index]),
        f"code {int(exact[index])}",
        f"code {int(got[index])}",
        "the nearest code, kept in float32 with what the input's zero point adds",
        index,
    )


def _tie_faults(exact: Array, got: Array, zero: Array, trial: Trial, wanted: Expected) -> Array:
    """Return infinity where a value is a tie and the code differs from the declared rounding mode, else 0.

    Judged only where the platform's own division is exact: powers of two, or exact arithmetic.
    """
    quantizer = trial.target.platform.quantizer
    faults = np.zeros(exact.shape)
    if not _is_exact(wanted, quantizer.operation):
        return faults
    twice = exact * 2
    # twice a tie is an odd integer
    for place in map(tuple, np.argwhere((twice == np.rint(twice)) & (np.rint(twice) % 2 != 0))):
        # a zero point that is added before rounding takes part in it
        inner = int(zero[place]) if quantizer.zero_point == "before" else 0
        code = rational_codes(Fraction(float(exact[place])) + inner, quantizer.rounding)[0] + int(zero[place]) - inner
        if min(wanted.qmax, max(wanted.qmin, code)) != got[place]:
            faults[place] = math.inf
    return faults


def _is_exact(wanted: Expected, operation: str) -> bool:
    """Return whether dividing by every scale is exact in the platform's float type: all are powers of two."""
    if operation == "exact":
        return True
    mantissa, _ = np.frexp(np.atleast_1d(wanted.scale))
    return bool((mantissa == 0.5).all())


def _along(values: Array, rank: int, axis: int | None) -> Array:
    if values.ndim == 0 or axis is None:
        return values
    return values.reshape([-1 if i == axis % rank else 1 for i in range(rank)])


def _spread(values: Array, shape: tuple[int, ...], axis: int | None, blocks: tuple[int, int] | None) -> Array:
    """Return numbers per channel, or per block in each channel, shaped to broadcast against a tensor of *shape*."""
    if blocks is None or axis is None:
        return _along(values, len(shape), axis)
    along, size = blocks
    # every block repeats its number; the last block may be shorter
    each = np.repeat(values, size, axis=1)[:, : shape[along]]
    wide = np.expand_dims(each, tuple(range(2, len(shape))))
    return np.moveaxis(wide, (0, 1), (axis % len(shape), along))
