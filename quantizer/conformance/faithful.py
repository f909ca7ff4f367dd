"""Whether an engine does what the built-in functions of a platform do, its defects included."""

from __future__ import annotations

import numpy as np
import torch

from quantizer.conformance.checks.parameters import failing
from quantizer.conformance.checks.tables import exponentials
from quantizer.conformance.checks.variants import planned, stitched
from quantizer.conformance.trial import Trial
from quantizer.core.errors import GraphError
from quantizer.numerics.activations import activate_codes
from quantizer.numerics.qparams import Staged
from quantizer.ops import BUILT_IN, REGISTRY, Function
from quantizer.runtime.engines.own import OwnEngine
from quantizer.tiling.windows import tiles


def is_faithful(trial: Trial, check: str) -> bool:
    """Return whether a failing *check* fails as the built-in functions do; True for an operator that has none.

    `parameters`: on tables alone, each the built-in rule's but for a unit and twice the float32 budget (exponentials of
    two libraries). Other checks: the codes are those of the built-in integer forward under the handed parameters; `tiled`:
    those of its tiles too.
    """
    if check == "parameters":
        return trial.built_in is None or all(_is_own_table(trial, finding.tensor) for finding in failing(trial))
    forward = REGISTRY.built_in(trial.spec.op, "quantized", trial.target.platform.platform)
    if forward is None or forward.origin != BUILT_IN:
        return True
    try:
        outcome = forward.function(**trial.codes, parameters=trial.parameters, **trial.case.attrs)
    except (KeyError, GraphError):  # a plugin handed none of the tables or numbers that the built-in forward needs
        return False
    codes, platform = outcome.codes if isinstance(outcome, Staged) else outcome, trial.target.platform
    if (name := trial.case.activation) != "none":
        codes = activate_codes(codes, trial.output, platform.activations[name], platform.rounding)  # type: ignore[index]
    same = torch.equal(codes, torch.from_numpy(trial.got))
    return same and (check != "tiled" or _tiled_alike(trial, forward.function))


def _tiled_alike(trial: Trial, forward: Function) -> bool:
    """Return whether the built-in forward, cut by the spec's rule, gives the codes that the engine's tiles give."""
    own = Trial(trial.target, trial.case, OwnEngine())
    own.parameters, own.codes = trial.parameters, trial.codes
    with REGISTRY.overridden(trial.spec.op, "quantized", forward, trial.target.platform.platform):
        wanted = stitched(own, tiles(trial.spec, trial.case.shapes, trial.case.attrs, trial.case.tiles))
    try:
        return np.array_equal(stitched(trial, planned(trial, trial.case.tiles)), wanted)
    except ValueError:
        return False


def _is_own_table(trial: Trial, tensor: str) -> bool:
    name = tensor.removeprefix("table ")
    own = trial.built_in.tables.get(name) if trial.built_in and name != tensor else None
    if own is None:
        return False
    handed = trial.parameters.tables[name]
    _, budget = exponentials(trial, handed, handed.first + handed.step * np.arange(handed.entries.numel()))
    same = (handed.first, handed.step, handed.unit, handed.entries.shape)
    return same == (own.first, own.step, own.unit, own.entries.shape) and bool(
        (np.abs((handed.entries - own.entries).numpy()) <= 1 + 2 * budget).all()
    )
