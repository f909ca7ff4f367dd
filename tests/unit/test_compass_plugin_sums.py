"""Where Compass adds in float32 a plugin may add in another order; a tie of small sums is exact in every order."""

from pathlib import Path

import pytest

from quantizer.conformance.faults.cases import gate_cases
from quantizer.conformance.faults.catalogue import catalogue
from quantizer.conformance.faults.planting import Planting
from quantizer.conformance.judging.judge import judge
from quantizer.conformance.setup.options import Options
from quantizer.conformance.setup.session import open_session
from quantizer.conformance.trials.trial import Trial

SESSION = open_session(Options(root=Path.cwd()))


@pytest.mark.parametrize("fault", ["rounding_half_up", "rounding_half_down", "rounding_half_away"])
@pytest.mark.parametrize("op", ["matmul", "reduce_sum", "conv3d", "conv_transpose2d"])
def test_wrong_tie_rounding_is_found_on_compass(op, fault):
    planted = next(known for known in catalogue() if known.id == fault)
    with Planting(planted, SESSION.library.spec(op), ("compass",)):
        assert any(
            verdict.failing
            for target, case in gate_cases(SESSION, op, "compass")
            for verdict in judge(Trial(target, case, SESSION.engine), ("arithmetic",))
        )
