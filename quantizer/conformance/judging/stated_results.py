"""Tells whether an engine computes what one of its declared defects states."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from quantizer.conformance.checks.arithmetic import arithmetic
from quantizer.conformance.checks.invariance import planned, tiled_codes
from quantizer.conformance.trials.trial import Trial
from quantizer.core.defects import Computes, Defect
from quantizer.core.platforms import Platform
from quantizer.numerics.qparams import Staged
from quantizer.runtime.engines.builtin import BuiltinEngine

Array = np.ndarray[Any, np.dtype[Any]]


def is_as_stated(defect: Defect, trial: Trial, check: str) -> bool:
    """Return whether the result that fails *check* is what *defect* states; true of a defect that states nothing.

    The result is the tiles' for `tiled`, else the whole's. Multiples: its codes lie in the intervals of the changed
    operands. Else they are those of the built-in functions under the stated arithmetic, or as near as stated.
    """
    stated = defect.computes
    if stated is None:
        return True
    try:
        result = _result(trial, check)
        if stated.multiples:
            return arithmetic(_of_multiples(stated.multiples, trial, result)).status == "pass"
        own = Trial(
            replace(trial.target, platform=stated_platform(trial.target.platform, stated)), trial.case, BuiltinEngine()
        )
        own.tensors = trial.tensors
        return bool(np.abs(_result(own, check) - result).max(initial=0) <= stated.within)
    except Exception:  # noqa: BLE001 - no defect excuses an engine that ends, nor a case that cannot be restated
        return False


def stated_platform(platform: Platform, stated: Computes) -> Platform:
    """Return *platform* with the requantizations and ratios of *stated*."""
    variants = {family: choices for family, choices in platform.variants.items() if family not in stated.requantize}
    ratio = {**platform.multiplier.ratio, **stated.ratio}
    return platform.model_copy(
        update={
            "requantize": {**platform.requantize, **stated.requantize},
            "variants": variants,
            "multiplier": platform.multiplier.model_copy(update={"ratio": ratio}),
        }
    )


def _result(trial: Trial, check: str) -> Array:
    return tiled_codes(trial, planned(trial, trial.case.tiles)) if check == "tiled" else trial.got


def _of_multiples(numbers: dict[str, int], trial: Trial, result: Array) -> Trial:
    """Return a trial with *result* whose operands have the nearest multiples of *numbers* as codes."""

    def changed(name: str, codes: Tensor) -> Tensor:
        return _nearest(codes, numbers[name]) if name in numbers else codes

    other, known = Trial(trial.target, trial.case, trial.engine), trial.parameters
    constants = {name: replace(held, codes=changed(name, held.codes)) for name, held in known.constants.items()}
    other.tensors, other.outcome = trial.tensors, Staged(torch.from_numpy(result), {})
    other.provide(replace(known, constants=constants))
    other.codes = {name: changed(name, codes) for name, codes in trial.codes.items()}
    return other


def _nearest(codes: Tensor, number: int) -> Tensor:
    """Return the nearest multiples of *number*; ties go to the even multiple."""
    return (codes.double() / number).round().to(codes.dtype) * number
