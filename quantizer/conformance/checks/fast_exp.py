"""Softmax with powers of two: a second implementation in numpy that shares nothing with `numerics`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from quantizer.conformance.checks.multiplier_rules import equal
from quantizer.conformance.expected import multipliers as expected_multipliers
from quantizer.conformance.trials.finding import Finding
from quantizer.conformance.trials.trial import Trial

Array = NDArray[Any]
LOG2_E = np.float32(1.442695)
MULTIPLIER_BITS = 13
LARGEST_SUM = 2**31 - 1
MANTISSA_BITS = 30
ROOT_HALF = 1518500250
"""Mantissa above which a logarithm is a half more."""


def number_findings(trial: Trial) -> Iterator[Finding]:
    """Yield findings on the multiplier from codes to exponents, and on the largest exponent that sums can hold.

    A number over a tensor is the tensor's reciprocal times the number there: two float32 roundings.
    """
    numbers, steps = trial.parameters.numbers, trial.parameters.inputs["x"].steps
    size = trial.case.shapes["x"][trial.axis]
    inverse = np.float32(1.0) / np.float32(1.0 if steps is None else steps.numpy())
    wanted = expected_multipliers.float32_multiplier(inverse * LOG2_E, MULTIPLIER_BITS)
    halves = int(trial.target.platform.tables.fast.get("softmax") == "power_of_two_halves")
    got = numbers["multiplier"], numbers["shift"]
    yield equal("multiplier, shift", (int(wanted[0]), wanted[1]), got, "the rule's multiplier of log2(e) * s_x")
    yield equal(
        "largest exponent", 31 - int(np.floor(np.log2(size))), numbers["largest_exponent"], "31 bits hold the sum"
    )
    yield equal("halves", halves, numbers["halves"], "the platform's fast form")


def codes(trial: Trial) -> Array:
    """Return the output codes that the provided numbers prescribe.

    Distances become whole exponents, powers are added, and the sum's logarithm, whole or to a half, is taken off
    every exponent.
    """
    numbers, output = trial.parameters.numbers, trial.output
    values = trial.codes["x"].numpy().astype(np.int64)
    distances = values - values.max(axis=trial.axis, keepdims=True)
    exponents = np.floor(distances * numbers["multiplier"] * 2.0 ** -numbers["shift"]).astype(np.int64)
    point, halves = numbers["largest_exponent"], numbers["halves"]
    total = np.clip(_power(exponents + point).sum(axis=trial.axis, keepdims=True), 1, LARGEST_SUM)
    whole = np.frexp(total.astype(np.float64))[1] - 1
    above = total * 2 ** (MANTISSA_BITS - whole) > ROOT_HALF
    scale = 2**halves
    logarithm = (whole - point) * scale + (above if halves else 0)
    found = _power(((exponents + output.bits) * scale - logarithm) // scale)
    return np.clip(found, output.qmin, output.qmax)


def _power(exponents: Array) -> Array:
    return np.where(exponents >= 0, 2 ** np.clip(exponents, 0, 62), 0)
