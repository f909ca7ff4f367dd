"""The check `accuracy` trusts no declared arithmetic; its interval must still be narrow enough to see a few codes."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from quantizer.conformance.checks.accuracy import accuracy
from quantizer.conformance.checks.stage_errors import stage_error
from quantizer.conformance.generation.builder import build_case
from quantizer.conformance.generation.choice_sources import HashChoices
from quantizer.conformance.setup.options import Options
from quantizer.conformance.setup.session import open_session
from quantizer.conformance.target import Target
from quantizer.conformance.trials.trial import Trial

SESSION = open_session(Options(root=Path.cwd()))


def trial_of(op: str, platform: str) -> Trial:
    library = SESSION.library
    target = Target(library.spec(op), library.scheme("a8"), library.platform(platform))
    return Trial(target, build_case(target, HashChoices(3, {"data": "random", "activation": "none"})), SESSION.engine)


@pytest.mark.parametrize("op", ["add", "sub"])
@pytest.mark.parametrize("platform", ["tflite_ref", "tflite_builtin"])
def test_a_sum_that_is_four_codes_off_is_outside_the_interval_of_litert(op: str, platform: str) -> None:
    moved = trial_of(op, platform)
    codes, output = moved.outcome.codes, moved.output
    moved.outcome = type(moved.outcome)((codes + 4).clamp(output.qmin, output.qmax), moved.outcome.stages)

    assert accuracy(trial_of(op, platform)).status == "pass"
    assert accuracy(moved).status == "fail"


@pytest.mark.parametrize("op", ["add", "sub"])
def test_a_rounded_term_of_litert_costs_its_own_unit_of_20_bits(op: str) -> None:
    trial = trial_of(op, "tflite_ref")
    rescale = trial.parameters.rescale
    assert rescale is not None
    unit = float(rescale.mantissa) * 2.0 ** -int(rescale.shift)

    assert float(np.max(stage_error(trial))) < 64 * unit < 1e-3
