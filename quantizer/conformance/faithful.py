"""Whether an engine does exactly what the built-in functions of a platform do, its defects included."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields, is_dataclass

import torch
from torch import Tensor

from quantizer.conformance.trial import Trial
from quantizer.numerics.qparams import Parameters, Staged
from quantizer.ops import BUILT_IN, REGISTRY


def is_faithful(trial: Trial, check: str) -> bool:
    """Return whether the parameters (for `parameters`) or the codes (otherwise) are the built-in functions' own."""
    if check == "parameters":
        own = built_in_parameters(trial)
        return own is None or _same(own, trial.parameters)
    forward = REGISTRY.built_in(trial.spec.op, "quantized", trial.target.platform.platform)
    if forward is None or forward.origin != BUILT_IN:
        return True
    outcome = forward.function(**trial.codes, parameters=trial.parameters, **trial.case.attrs)
    return torch.equal(outcome.codes if isinstance(outcome, Staged) else outcome, torch.from_numpy(trial.got))


def built_in_parameters(trial: Trial) -> Parameters | None:
    """Return what the platform's built-in rule hands for the trial, or None where there is none."""
    rule = REGISTRY.built_in(trial.spec.op, "quantize", trial.target.platform.platform)
    if rule is None or rule.origin != BUILT_IN:
        return None
    constants = {n: t for n, t in trial.tensors.items() if trial.spec.inputs[n].role != "activation"}
    samples = {n: t for n, t in trial.tensors.items() if n not in constants}
    parameters: Parameters = rule.function(trial.target.request(trial.case, constants, samples))
    return parameters


def _same(first: object, second: object) -> bool:
    if isinstance(first, Tensor):
        return isinstance(second, Tensor) and first.dtype == second.dtype and torch.equal(first, second)
    if isinstance(first, Mapping):
        return (
            isinstance(second, Mapping)
            and first.keys() == second.keys()
            and all(_same(first[key], second[key]) for key in first)
        )
    if is_dataclass(first) and type(first) is type(second):
        return all(_same(getattr(first, item.name), getattr(second, item.name)) for item in fields(first))
    return first == second
