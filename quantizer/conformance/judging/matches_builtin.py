"""Tells whether an engine computes the same as the built-in functions of a platform, declared defects included."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import torch

from quantizer.conformance.checks.invariance import planned, stitched, tiled_codes, tiled_float
from quantizer.conformance.checks.parameters import failing
from quantizer.conformance.checks.staged import undeclared
from quantizer.conformance.checks.tables import holds_spread_entries
from quantizer.conformance.trials.declared import known_stages
from quantizer.conformance.trials.trial import Trial
from quantizer.core.platforms import computed_activation
from quantizer.numerics.activations import activate_codes
from quantizer.numerics.parameters import default_parameters
from quantizer.numerics.qparams import Staged
from quantizer.numerics.split_outputs import concatenate_outputs
from quantizer.ops import REGISTRY
from quantizer.ops.registry import BUILT_IN, Function
from quantizer.runtime.engines.builtin import BuiltinEngine
from quantizer.tiling.windows import tiles


def matches_builtin(trial: Trial, check: str) -> bool:
    """Return whether a failing *check* fails like the built-in functions; True for an operator without them.

    * `parameters`: every failing number is the built-in rule's own. A bias has its codes. A table has its layout, and
      its entries, or entries within half a unit and the float32 budget of f at the rule's own points, because two
      libraries compute f. A range that is not held follows from the platform's rule.
    * Other checks: the codes are those of the built-in integer forward under the provided parameters.
    * `tiled`: so are the codes of the tiles, and float tiles lie within their bound.
    """
    if check == "parameters":
        return all(_is_own(trial, finding.tensor) for finding in failing(trial))
    forward = REGISTRY.built_in(trial.spec.op, "quantized", trial.target.platform.places)
    if forward is None or forward.origin != BUILT_IN:
        return True
    try:
        outcome = forward.function(**trial.codes, parameters=trial.parameters, **trial.case.attrs)
        got = torch.from_numpy(trial.got)
    except Exception:  # noqa: BLE001 - no defect excuses a forward that raises
        return False
    made, platform = outcome.codes if isinstance(outcome, Staged) else outcome, trial.target.platform
    codes = concatenate_outputs(trial.spec, made, trial.case.shapes, trial.case.attrs)
    if (name := trial.case.activation) != "none":
        codes = activate_codes(
            codes, trial.output, computed_activation(platform, name), replace(trial.parameters, platform=platform)
        )
    declared = known_stages(trial)
    if declared is not None and undeclared(trial.outcome.stages, declared, trial.target.id) is not None:
        return False  # the declaration of a defect does not cover further stages
    same = torch.equal(codes, got)
    return same and (check != "tiled" or _tiled_alike(trial, forward.function))


def _tiled_alike(trial: Trial, forward: Function) -> bool:
    """Return whether the built-in forward, cut by the spec's rule, gives the codes that the engine's tiles give."""
    own = Trial(trial.target, trial.case, BuiltinEngine())
    own.parameters, own.codes = trial.parameters, trial.codes
    with REGISTRY.overridden(trial.spec.op, "quantized", forward, trial.target.platform.platform, origin=BUILT_IN):
        wanted = stitched(own, tiles(trial.spec, trial.case.shapes, trial.case.attrs, trial.case.tiles))
    try:
        plan = planned(trial, trial.case.tiles)
        return np.array_equal(tiled_codes(trial, plan), wanted) and not tiled_float(trial, plan).failing
    except Exception:  # noqa: BLE001 - tiles that raise are not a defect of the real system
        return False


def _is_own(trial: Trial, tensor: str) -> bool:
    """Return whether the built-in rule provides the number in a finding; ranges follow from the platform's rule."""
    if tensor.startswith("range of "):
        return True
    item = trial.spec.inputs.get(tensor)
    if item is None:
        return _is_own_table(trial, tensor)
    if item.role != "bias":
        return False
    constants = {n: t for n, t in trial.tensors.items() if trial.spec.inputs[n].role != "activation"}
    own = trial.built_in or default_parameters(trial.target.request(trial.case, constants))
    return torch.equal(own.constants[tensor].codes, trial.parameters.constants[tensor].codes)


def _is_own_table(trial: Trial, tensor: str) -> bool:
    name = tensor.removeprefix("table ")
    own = trial.built_in.tables.get(name) if trial.built_in and name != tensor else None
    if own is None:
        return False
    provided = trial.parameters.tables[name]
    # a table of another layout does not come from the built-in rule
    same = (provided.first, provided.step, provided.unit, provided.entries.shape)
    if same != (own.first, own.step, own.unit, own.entries.shape):
        return False
    if torch.equal(provided.entries, own.entries):
        return True
    return holds_spread_entries(trial, name, provided)
