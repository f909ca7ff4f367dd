"""The check `engine`: a real engine and our functions of the same platform must agree bit for bit."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from quantizer.conformance.checks.accumulators import order_decides
from quantizer.conformance.trials.elements import judge_equal
from quantizer.conformance.trials.trial import Trial
from quantizer.core.rooms import oracle_of
from quantizer.core.verdict import Verdict, inconclusive
from quantizer.runtime.engines.builtin import BuiltinEngine

CHECK = "engine"


def engine(trial: Trial) -> Verdict | None:
    """Compare the codes with those of the built-in engine under the same parameters.

    None if the built-in engine is under test, or need not agree. Where an accumulator saturates before a sum is
    complete, every order of additions is right, unless an oracle says which: `arithmetic` judges these codes.
    """
    if isinstance(trial.engine, BuiltinEngine) or trial.target.platform.enclosing is not None:
        return None
    wanted = BuiltinEngine().run(trial.call, trial.codes, trial.parameters).codes.numpy()
    platform = trial.target.platform
    # elements whose codes depend on the order of additions: every order is right
    free = np.zeros(wanted.shape, dtype=bool)
    if trial.got.shape == wanted.shape and oracle_of(trial.spec.quantization.family, platform.places) is None:
        free = order_decides(trial)
    if free.size and free.all():
        return inconclusive(CHECK, "the order of additions decides each sum")
    got = np.where(free, wanted, trial.got) if free.any() else trial.got
    verdict = judge_equal(CHECK, trial, got, wanted, f"our functions of platform {platform.platform}")
    return replace(verdict, elements=verdict.elements - int(np.count_nonzero(free)))
