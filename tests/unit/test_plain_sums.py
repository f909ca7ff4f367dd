"""Plain sums as a reference for kernels exist for every shipped operator of their families."""

import itertools
from pathlib import Path

import pytest

from quantizer.conformance.checks.window_sums import SUMS, mean_counts, window_sums
from quantizer.conformance.faults.cases import gate_cases
from quantizer.conformance.setup.options import Options
from quantizer.conformance.setup.session import open_session
from quantizer.conformance.trials.trial import Trial

SESSION = open_session(Options(root=Path.cwd()))
OPS = [op for op, spec in SESSION.library.specs.items() if spec.quantization.family in SUMS]


def test_every_family_of_sums_has_an_operator():
    assert {SESSION.library.spec(op).quantization.family for op in OPS} == set(SUMS)


@pytest.mark.parametrize("op", OPS)
def test_plain_sums_exist_for_every_case(op):
    """An exception would count as a foreign family of sums, and hide a mistake in a shipped one."""
    for target, case in itertools.islice(gate_cases(SESSION, op), 200):
        trial = Trial(target, case, SESSION.engine)
        if trial.refusal is None:
            found = window_sums(trial)
            assert found is not None and found.shape == trial.output_shape
            if trial.spec.error_model.kind == "mean":
                known = mean_counts(trial)
                assert known is not None and known.min() >= 0
