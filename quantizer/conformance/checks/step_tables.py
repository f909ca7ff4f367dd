"""Entries of functions with whole values (round, floor, ceil), where a platform builds its tables in float32."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from quantizer.conformance.checks.declared_quantizer import declared_codes
from quantizer.conformance.checks.multiplier_rules import is_replaced
from quantizer.conformance.trials.trial import Trial

Array = NDArray[Any]


def step_codes(trial: Trial, places: Array, beside: Array | float, folded: float) -> list[Array] | None:
    """Return the possible entries at each place: the code of f there, of f just below, and of f just above.

    A whole number is exact in float32, so that the declared quantizer gives it one code (and a plugin may multiply
    exactly). Only the float32 error of the operand is allowed: at a jump of f, the codes of both sides, but none
    between them. *beside*: the allowed error of a position, in codes. *folded*: scale times zero point, if the kernel
    rounds this product. None for any other f, or if the platform declares no float32 quantizer for its tables.
    """
    platform, output, zero = trial.target.platform, trial.output, int(trial.output.zero_point)
    if platform.tables.alignment != "linspace" or platform.quantizer.rounding != platform.rounding:
        return None
    ((name, params),) = trial.parameters.inputs.items()
    scale = float(params.scale)
    real = (places - int(params.zero_point)) * scale
    by = beside * scale + 2.0**-24 * (4 * np.abs(real) + folded)
    values = [trial.reference({name: torch.from_numpy(np.asarray(real + side * by))}) for side in (0, -1, 1)]
    # f has values that are not whole, so this judge does not apply
    if any(part.shape != places.shape or not (np.rint(part) == part).all() for part in values):
        return None
    steps = None if output.steps is None else np.broadcast_to(output.steps.numpy(), places.shape)
    scales, zeros = np.full(places.shape, float(output.scale)), np.full(places.shape, zero)
    ends = output.qmin, output.qmax
    found: list[Array] = []
    for part in values:
        codes = declared_codes(part, scales, steps, zeros, platform.quantizer, ends, exact=is_replaced(trial))
        if codes is None:
            return None
        found += codes
    return found
