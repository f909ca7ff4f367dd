"""The check `exact`: accumulators equal a plain int64 sum over explicit windows, with a function for each family."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from quantizer.conformance.checks.blocks import columns_of, one_block, weight_in_blocks
from quantizer.conformance.checks.window_sums import SUMS, window_sums
from quantizer.conformance.trials.elements import judge_equal
from quantizer.conformance.trials.trial import Trial
from quantizer.core.verdict import Verdict, inconclusive

Array = NDArray[Any]
CHECK = "exact"
INT64_BITS = 64


def exact(trial: Trial) -> Verdict | None:
    """Judge the engine's accumulators; None for an operator without sums; inconclusive if sums cannot be judged."""
    wanted = window_sums(trial) if (name := weight_in_blocks(trial)) is None else _in_blocks(trial, name)
    if wanted is None and trial.spec.quantization.family in SUMS:
        return inconclusive(CHECK, f"its attributes are not those of family {trial.spec.quantization.family}")
    if wanted is None:
        if trial.spec.error_model.kind in ("bilinear", "mean"):
            return inconclusive(CHECK, f"family {trial.spec.quantization.family} has no window sum to compare with")
        return None
    acc = trial.accumulate(trial.call, trial.codes, trial.parameters)
    if acc is None:
        return inconclusive(CHECK, f"engine {trial.engine.name} shows no accumulators")
    got = acc.numpy()
    rule, scheme = trial.target.platform.accumulator, trial.target.scheme
    if rule.overflow == "wrap" and trial.spec.error_model.kind == "bilinear":
        # two wrapping sums are equal if they are equal modulo the register; an engine may wrap later
        bits = scheme.activation.accumulator_bits if rule.bits == "scheme" else rule.bits
        got, wanted = _wrapped(got, bits), _wrapped(wanted, bits)
    return judge_equal(CHECK, trial, got, wanted, "the int64 sum over explicit windows", tensor="accumulator")


def _in_blocks(trial: Trial, name: str) -> Array | None:
    """Return the int64 sum of each block over explicit windows, and the constant, along a last axis of their own."""
    *blocks, (constant, _) = columns_of(trial, name)
    found = [window_sums(one_block(trial, name, block)) for block in range(len(blocks))]
    sums = [part for part in found if part is not None]
    return np.stack([*sums, constant.astype(np.int64)], -1) if len(sums) == len(found) else None


def _wrapped(sums: Array, bits: int) -> Array:
    """Return sums wrapped to the accumulator's bits. Wider accumulators than 64 bits count as 64."""
    if bits >= INT64_BITS:
        return sums
    limit = 1 << (bits - 1)
    return (sums + limit & (limit << 1) - 1) - limit
