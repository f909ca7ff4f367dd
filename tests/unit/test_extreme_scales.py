"""Outputs of very small scales next to ordinary inputs: no check raises an alarm where a platform's numbers leave their reach."""

from pathlib import Path

import pytest

from quantizer.conformance.generation.builder import build_case
from quantizer.conformance.generation.choice_sources import HashChoices
from quantizer.conformance.generation.hashing import key
from quantizer.conformance.judging.judge import judge
from quantizer.conformance.setup.options import Options
from quantizer.conformance.setup.session import open_session
from quantizer.conformance.trials.trial import Trial

SESSION = open_session(Options(root=Path.cwd()))
TARGETS = [target for spec in SESSION.library.specs.values() for target in SESSION.all_targets(spec)]
PLACES = [18, 24, 30, 45]
PLATFORMS = sorted({target.platform.platform for target in TARGETS})


@pytest.mark.parametrize("share", [2, pytest.param(1, marks=pytest.mark.nightly)])
@pytest.mark.parametrize("places", PLACES)
@pytest.mark.parametrize("platform", PLATFORMS)
def test_much_finer_output_scales_raise_no_alarm(platform, places, share):
    """Every target has two of the four scales, the next target the other two; at night all four."""
    judged = 0
    mine = [target for target in TARGETS if target.platform.platform == platform]
    for target in mine[PLACES.index(places) % share :: share]:
        case = build_case(target, HashChoices(key(7, "extreme", str(places), target.id), {}))
        if "y" not in case.ranges:
            continue
        tiny = tuple(end * 2.0**-places for end in case.ranges["y"])
        changed = case.but(ranges={**case.ranges, "y": tiny})
        failing = [verdict for verdict in judge(Trial(target, changed, SESSION.engine)) if verdict.failing]
        assert not failing, (changed.to_json(), failing[0])
        judged += 1
    assert judged
