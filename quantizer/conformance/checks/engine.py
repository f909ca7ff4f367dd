"""The check `engine`: a real engine and our functions of the same platform must agree bit for bit."""

from __future__ import annotations

from quantizer.conformance.trials.elements import judge_equal
from quantizer.conformance.trials.trial import Trial
from quantizer.core.verdict import Verdict
from quantizer.runtime.engines.builtin import BuiltinEngine

CHECK = "engine"


def engine(trial: Trial) -> Verdict | None:
    """Compare the codes with those of the built-in engine under the same parameters.

    None if the built-in engine is under test, or need not agree.
    """
    if isinstance(trial.engine, BuiltinEngine) or trial.target.platform.enclosing is not None:
        return None
    wanted = BuiltinEngine().run(trial.call, trial.codes, trial.parameters).codes.numpy()
    return judge_equal(CHECK, trial, trial.got, wanted, f"our functions of platform {trial.target.platform.platform}")
