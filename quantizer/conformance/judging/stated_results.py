"""Tells whether an engine computes what one of its declared defects states."""

from __future__ import annotations

import copy
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from quantizer.conformance.checks.enclosed import enclosed
from quantizer.conformance.checks.float_forward import float_forward
from quantizer.conformance.checks.invariance import (
    owed,
    planned,
    repeat,
    tiled_codes,
    tiled_float,
)
from quantizer.conformance.checks.properties import Related, related_runs
from quantizer.conformance.trials.elements import ALLOWED
from quantizer.conformance.trials.trial import Trial
from quantizer.core.attributes import real
from quantizer.core.defects import Computes, Defect
from quantizer.core.errors import QuantizerError
from quantizer.core.expressions import parse
from quantizer.core.platforms import Platform
from quantizer.numerics.qparams import Staged
from quantizer.runtime.engines.builtin import BuiltinEngine
from quantizer.tiling.operands import UnfitError

Array = np.ndarray[Any, np.dtype[Any]]
WIDEST = 2**15 - 1
"""The largest number of 16 bits."""


def is_as_stated(defect: Defect, trial: Trial, check: str) -> bool:
    """Return whether the result that fails *check* is the one that *defect* states; True if it states none.

    The result is that of the float operator for `float`, that of the tiles for `tiled`, and else that of the whole.

    * A float result lies no farther from the right one than stated. For `tiled`, float tiles are judged too.
    * On an enclosing platform, codes lie in the intervals that follow from the changed operands, attributes, sums or
      errors. The codes of each run of `properties` lie in the intervals of its own operands, or in the platform's. No
      defect excuses runs that differ, or damaged operands.
    * On other platforms, codes are those of the built-in functions under the stated arithmetic, or as near to them as
      stated.

    False where the engine ends or refuses, and where the statement has no value for the case. Any other error is ours,
    and is raised.
    """
    stated = defect.computes
    if stated is None:
        return True
    try:
        off_by = _off_by(stated, trial, trial.doubles, trial.y)
        if check == "float":
            return float_forward(trial, off_by=off_by).status == "pass"
        if check == "tiled" and tiled_float(trial, planned(trial, trial.case.tiles), off_by=off_by).failing:
            return False
        result = _result(trial, check)
        if stated.encloses:
            # the whole may pass with the defect while a further run of the check does not
            restated, passes = _restated(stated, trial, result)
            return passes and _holds_again(stated, trial, restated, check)
        own = Trial(
            replace(trial.target, platform=stated_platform(trial.target.platform, stated)), trial.case, BuiltinEngine()
        )
        own.tensors = trial.tensors
        return bool(np.abs(_result(own, check) - result).max(initial=0) <= stated.within)
    except (QuantizerError, UnfitError):  # the engine ended or refused, or the statement has no value here
        return False
    except Exception as err:
        err.add_note(f"while {check} of a case of {trial.spec.op} was compared with what {defect.id} states")
        raise


def _restated(stated: Computes, trial: Trial, result: Array) -> tuple[list[Trial], bool]:
    """Judge *result* under each stated change; return the changed trials, and whether one of them passes."""
    first, off_by = stated.zero_point == "before", _off_by(stated, trial, trial.values, trial.y_hat)
    restated = [*_changed(stated, trial, result)]
    found = [enclosed(one, zero_point_first=first, off_by=off_by) for one in restated]
    return restated, any(verdict.status == "pass" for verdict in found)


def _holds_again(stated: Computes, trial: Trial, restated: Sequence[Trial], check: str) -> bool:
    """Return whether the further runs of *check* are as stated, too."""
    if check == "repeat":
        return _repeats(trial, restated)
    return check != "properties" or all(_is_related(stated, trial, related) for related in related_runs(trial))


def _is_related(stated: Computes, trial: Trial, related: Related) -> bool:
    """Return whether each code of a related run is right for its own operands, with the defect or without it."""
    own = Trial(trial.target, trial.case, trial.engine)
    own.tensors, own.outcome = trial.tensors, trial.run(trial.call, related.codes, related.parameters)
    own.provide(related.parameters)
    own.codes = dict(related.codes)
    low, high = _hull(own, _restated(stated, own, own.got)[0])
    return bool(((low <= own.got) & (own.got <= high)).all())


def _hull(trial: Trial, restated: Sequence[Trial]) -> tuple[Array, Array]:
    """Return the lowest and the highest code of each element, with the defect or without it."""
    lows, highs = zip(*map(owed, (trial, *restated)), strict=True)
    return np.minimum.reduce(lows), np.maximum.reduce(highs)


def _repeats(trial: Trial, restated: Sequence[Trial]) -> bool:
    """Return whether the check `repeat` passes where every run may have the defect or not.

    An engine chooses kernels by shapes, so that it may have the defect in the whole and not in a slice.
    """
    other = copy.copy(trial)
    other.shared = dict(zip(ALLOWED, _hull(trial, restated), strict=True))
    return not repeat(other).failing


def stated_platform(platform: Platform, stated: Computes) -> Platform:
    """Return *platform* with its requantizations and ratios replaced by those that *stated* declares."""
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


def _off_by(stated: Computes, trial: Trial, operands: Mapping[str, Tensor], y: Array) -> Array:
    """Return the stated error of each real result in addition to float32's; zeros if no error is stated."""
    if not stated.off_by:
        return np.zeros(y.shape)
    expression, scale = parse(stated.off_by), float(trial.output.scale)
    # expressions may name only operands that have one number for each output
    known = {
        name: np.broadcast_to(values.numpy(), y.shape)
        for name, values in operands.items()
        if _broadcasts(tuple(values.shape), y.shape)
    }
    largest = max((float(values.abs().max()) for values in operands.values() if values.numel()), default=0.0)
    same = {"step": scale, "largest": largest, "infinity": math.inf}
    found = np.empty(y.shape)
    for index in np.ndindex(*y.shape):
        own = {name: float(values[index]) for name, values in known.items()}
        right = {"y": float(y[index]), "code": float(y[index]) / scale}
        found[index] = expression({**trial.case.attrs, **own, **right, **same})
    return found


def _broadcasts(shape: tuple[int, ...], whole: tuple[int, ...]) -> bool:
    """Return whether an operand of *shape* broadcasts to a result of the shape *whole*."""
    ends = zip(reversed(shape), reversed(whole), strict=False)
    return len(shape) <= len(whole) and all(size in (1, length) for size, length in ends)


def _changed(stated: Computes, trial: Trial, result: Array) -> Iterator[Trial]:
    """Yield trials with *result*, whose operands, attributes and sums are those with which the engine computes.

    Pairs begin at the first term. In a second trial they begin also at the second half of the terms, which a kernel
    may process as a separate block.
    """

    def nearest(name: str, codes: Tensor) -> Tensor:
        return _nearest(codes, stated.multiples[name]) if name in stated.multiples else codes

    attrs = {name: _cut(real(trial.case.attrs, name), trial) for name in stated.whole_codes}
    known, case = trial.parameters, trial.case.but(attrs={**trial.case.attrs, **attrs})
    constants = {name: replace(held, codes=nearest(name, held.codes)) for name, held in known.constants.items()}
    other = Trial(trial.target, case, trial.engine)
    other.tensors, other.outcome = trial.tensors, Staged(torch.from_numpy(result), {})
    other.provide(replace(known, constants=constants))
    other.codes = {name: nearest(name, codes) for name, codes in trial.codes.items()}
    axes = {name: axis for name, axis in stated.saturating_pairs.items() if name in other.codes}
    if not axes:
        yield other
        return
    ((name, axis),) = axes.items()
    terms = other.codes[name].shape[axis]
    # a kernel may process the terms in two blocks, in which pairs start anew
    for block in (terms, -(-terms // 2)):
        again = copy.copy(other)
        again.shared, lost = {}, _lost_in_pairs(other, name, axis, block)
        again.y_hat = np.clip(other.reference(other.values) + lost, *other.limits)
        yield again


def _cut(value: float, trial: Trial) -> float:
    """Return *value* rounded to the grid of the first input; the code is truncated toward zero."""
    params = next(iter(trial.parameters.inputs.values()))
    scale, zero = float(params.scale), int(params.zero_point)
    return scale * (math.trunc(value / scale + zero) - zero)


def _lost_in_pairs(trial: Trial, name: str, axis: int, block: int) -> Array:
    """Return the loss of each sum, as real numbers, if pairs of products of unsigned codes saturate in 16 bits."""
    raw = {n: torch.zeros_like(c) if trial.spec.inputs[n].role == "bias" else c for n, c in trial.codes.items()}
    moved = raw[name].double() - min(int(trial.qparams(name).dtype.min), 0)
    lost = np.zeros(trial.output_shape)
    terms = moved.shape[axis]
    for first in (place for start in range(0, terms, block) for place in range(start, min(start + block, terms), 2)):
        kept: list[slice] = [slice(None)] * moved.dim()
        # a pair does not cross the end of its block
        kept[axis] = slice(first, min(first + 2, (first // block + 1) * block))
        pair = torch.zeros_like(moved)
        pair[tuple(kept)] = moved[tuple(kept)]
        added = trial.reference({n: pair if n == name else codes.double() for n, codes in raw.items()})
        lost += np.clip(added, -WIDEST - 1, WIDEST) - added
    factors = [trial.qparams(n).scale for n in raw if trial.spec.inputs[n].role != "bias"]
    return np.asarray(lost * math.prod(trial.per_channel(one) for one in factors))


def _nearest(codes: Tensor, number: int) -> Tensor:
    """Return the nearest multiples of *number*; ties go to the even multiple."""
    return (codes.double() / number).round().to(codes.dtype) * number
