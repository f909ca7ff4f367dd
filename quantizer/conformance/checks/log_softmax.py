"""LogSoftmax: judged from the provided exponentials (`arithmetic`), and its stage errors (`accuracy`)."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from quantizer.conformance.bounds.pairs import of_floats
from quantizer.conformance.checks.requantized import FLOAT32_UNIT
from quantizer.conformance.checks.softmax import final_codes
from quantizer.conformance.checks.unary import judge_by_reference
from quantizer.conformance.trials.trial import Trial
from quantizer.core.verdict import Verdict
from quantizer.numerics.qparams import Table

Array = NDArray[Any]
OPERATIONS = 8
"""The number of roundings of one code outside the sum, including the logarithm and both ratios of scales."""
FLOAT64_UNIT = 2.0**-50


def logarithms(trial: Trial) -> Verdict:
    """Judge the codes of `distance * s_x / s_y - log(sum) / s_y`, where `sum` adds the provided exponentials.

    If only one exponential is not 0 and scales are powers of two, the result is exact, and ties round as the platform
    declares.
    """
    table = trial.parameters.tables.get("exp")
    if table is None:
        return judge_by_reference(trial)
    codes = trial.codes["x"].numpy()
    distance = codes - codes.max(axis=trial.axis, keepdims=True)
    total = _exponentials(distance, table).sum(axis=trial.axis, keepdims=True)
    s_x, s_y = float(trial.parameters.inputs["x"].scale), float(trial.output.scale)
    logarithm = np.log(total)
    value = (distance * s_x - logarithm) / s_y
    unit = FLOAT32_UNIT if table.entries.dtype.is_floating_point else FLOAT64_UNIT
    extra = unit * (OPERATIONS * (np.abs(distance) * s_x + np.abs(logarithm)) + distance.shape[trial.axis]) / s_y
    # a sum of 1 has the logarithm 0, and powers of two scale without rounding
    settled = (logarithm == 0) & all(math.frexp(scale)[0] == 0.5 for scale in (s_x, s_y))
    return final_codes(
        trial,
        value,
        np.where(settled, 0.0, extra),
        of_floats(value),
        "distance minus the logarithm of the provided exponentials",
    )


def stage_error(trial: Trial, table: Table) -> Array:
    """Return e in output codes: half a unit of each exponential, chords between entries, float32 sums."""
    x, y = trial.values["x"].numpy(), trial.y_hat
    s_x, s_y = float(trial.parameters.inputs["x"].scale), float(trial.output.scale)
    terms = trial.case.shapes["x"][trial.axis]
    total = np.exp(x - x.max(axis=trial.axis, keepdims=True)).sum(axis=trial.axis, keepdims=True)
    if table.entries.dtype.is_floating_point:
        relative = np.asarray(FLOAT32_UNIT * (OPERATIONS * (np.abs(y) + np.log(total) + 1) + terms))
    else:
        relative = terms * table.unit / 2 / total
    width = (abs(table.step) - 1) * s_x
    return np.asarray((relative + (width**2 / 8 * np.exp(width) + np.expm1(width))) / s_y * np.ones(y.shape))


def _exponentials(distance: Array, table: Table) -> Array:
    """Return the provided table at each distance from the largest code, interpolated linearly between entries."""
    entries = np.append(table.entries.numpy(), table.entries.numpy()[-1]).astype(np.float64) * table.unit
    step = abs(table.step)
    # a negative step: the entries run away from the largest code
    place = (distance - table.first) if table.step > 0 else (table.first - distance)
    index, part = np.divmod(np.clip(place, 0, table.entries.numel() * step - 1), step)
    return np.asarray(entries[index] + (entries[index + 1] - entries[index]) * part / step)
