"""Finds readings under which a failing case of a plugin would pass. The owner of the run may accept one of them."""

from __future__ import annotations

import copy
from collections.abc import Iterator, Sequence
from dataclasses import replace

from quantizer.conformance.judging.judge import judge
from quantizer.conformance.trials.trial import Trial
from quantizer.core.readings import READINGS
from quantizer.core.verdict import Verdict
from quantizer.ops import REGISTRY
from quantizer.ops.registry import BUILT_IN

OF_READINGS = ("parameters", "arithmetic", "accuracy")
"""The checks whose verdicts depend on the reading."""


def reading_lines(trial: Trial, failing: Sequence[Verdict]) -> list[str]:
    """Return a line for each reading under which the case passes. Nothing is run again."""
    if not _is_of_plugin(trial) or not any(verdict.check in OF_READINGS for verdict in failing):
        return []
    place = f"{trial.spec.op}/{trial.target.platform.platform}"
    return [
        f"  reading     this case passes with --op-reading={place}:{name}, if that is your arithmetic: {READINGS[name]}"
        for name in _accepting(trial)
    ]


def _is_of_plugin(trial: Trial) -> bool:
    """Return whether a plugin's rule or forward ran in the built-in engine."""
    found = (REGISTRY.find(trial.spec.op, part, trial.target.platform.places) for part in ("quantize", "quantized"))
    return not trial.engine.version and any(entry is not None and entry.origin != BUILT_IN for entry in found)


def _accepting(trial: Trial) -> Iterator[str]:
    for name in READINGS:
        if name != trial.target.reading and _passes(_under(trial, name)):
            yield name


def _under(trial: Trial, reading: str) -> Trial:
    """Return *trial* as if the owner of the run had chosen *reading*."""
    # a shallow copy keeps codes and results, so that the function does not run again
    spec, other = trial.target.spec, copy.copy(trial)
    chosen = {**spec.readings, trial.target.platform.platform: reading}
    other.target = replace(trial.target, spec=spec.model_copy(update={"readings": chosen}))
    return other


def _passes(trial: Trial) -> bool:
    return not any(verdict.failing for verdict in judge(trial, OF_READINGS))
