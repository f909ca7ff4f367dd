"""The rows of a normalization: N elements of x each, independent of the names of the axes."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from quantizer.conformance.trials.trial import Trial
from quantizer.core.errors import SpecError
from quantizer.core.expressions import Expression

Array = NDArray[Any]


def norm_count(trial: Trial) -> int:
    """Return N, the number of elements that are normalised together."""
    if trial.spec.error_model.terms is None:
        raise SpecError(
            f"{trial.spec.op}: error_model.terms is missing. Say how many elements are normalised together."
        )
    return trial.terms


def rows(trial: Trial, values: Array) -> Array:
    """Return *values* of the shape of x in rows of N."""
    return values.reshape(-1, norm_count(trial))


def row_codes(trial: Trial) -> Array:
    """Return the codes of x in rows of N; centred if the operator does not subtract the mean."""
    codes = trial.codes["x"].numpy().astype(np.int64)
    return rows(trial, codes if trial.spec.error_model.centred else codes - int(trial.qparams("x").zero_point))


def row_means(trial: Trial, values: Array) -> Array:
    """Return the mean of each row, 0 if the operator does not subtract it."""
    if trial.spec.error_model.centred:
        return np.asarray(values.mean(axis=1, keepdims=True))
    return np.zeros((len(values), 1))


def neighbours_of(trial: Trial, name: str, values: Array) -> Array:
    """Return *values*, in the shape of gamma or beta, reshaped to broadcast against x along the axis that both name."""
    whole, own = trial.spec.inputs["x"].axes, trial.spec.inputs[name].axes
    if not isinstance(whole, list) or not isinstance(own, list):
        return values
    place = whole.index(_only(own))
    return values.reshape(-1, *(1,) * (len(whole) - place - 1))


def _only(axes: list[Expression]) -> Expression:
    (axis,) = axes
    return axis
