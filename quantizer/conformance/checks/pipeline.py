"""pipeline: a run through the system's own files and tools gives the codes of the direct run."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from quantizer.conformance.trials.trial import Trial
from quantizer.core.errors import UnsupportedError
from quantizer.core.rooms import loaded, room_of
from quantizer.core.verdict import Verdict, failure, inconclusive, passed
from quantizer.runtime.isolation.plugins import run_flow

CHECK = "pipeline"


def pipeline(trial: Trial) -> Verdict | None:
    """Compare the direct run with the flow that the platform's room names; None without a flow."""
    room = room_of(trial.target.platform.platform)
    if room is None or room.flow is None:
        return None
    if np.isnan(trial.y).any():
        return inconclusive(CHECK, "the reference is NaN on the samples: no flow calibrates on that")
    platform = trial.target.platform
    try:
        written = loaded(room.flow.writes)(trial)
        made = run_flow(room.flow.runs, trial.spec.op, platform.places, (trial.spec, platform), written)
    except UnsupportedError as err:
        return inconclusive(CHECK, str(err))
    if not isinstance(made, Tensor) or made.is_floating_point() or made.dtype == torch.bool:
        kind = str(made.dtype) if isinstance(made, Tensor) else type(made).__name__
        return failure(CHECK, f"the flow gives {kind}: codes are integers")
    got = made.numpy()
    wanted = trial.got
    if got.shape != wanted.shape:
        return failure(CHECK, f"the flow gives shape {list(got.shape)}, the direct run {list(wanted.shape)}")
    unequal = np.argwhere(got != wanted)
    if len(unequal):
        index = tuple(int(i) for i in unequal[0])
        text = f"{len(unequal)} of {wanted.size} codes differ, first at {list(index)}: {got[index]} through the flow"
        return failure(CHECK, f"{text}, {wanted[index]} directly", elements=wanted.size, failed=len(unequal))
    return passed(CHECK, elements=wanted.size)
