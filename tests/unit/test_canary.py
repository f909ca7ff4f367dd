"""An undamaged judge sees a fault planted in any operator and any function that a passed case judged."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from quantizer.conformance.generation.builder import build_case
from quantizer.conformance.generation.choice_sources import HashChoices
from quantizer.conformance.generation.hashing import key
from quantizer.conformance.judging.canary import CODES, faults, witness
from quantizer.conformance.judging.judge import judge
from quantizer.conformance.setup.options import Options
from quantizer.conformance.setup.session import Session, open_session
from quantizer.conformance.trials.trial import Trial
from quantizer.core.library import load_library
from quantizer.ops import REGISTRY


@pytest.fixture(scope="module")
def session() -> Session:
    return open_session(Options(Path(__file__).parents[2]))


@pytest.mark.parametrize("cases", [2, pytest.param(6, marks=pytest.mark.nightly)])
@pytest.mark.parametrize("op", sorted(load_library().specs))
def test_the_canary_sees_a_planted_fault(session: Session, op: str, cases: int) -> None:
    """On a platform a name: the hash of the operator says which, so that all platforms come up among all operators."""
    targets = session.all_targets(session.library.spec(op))
    planted = 0
    for index in range(6):  # not every case has an element in which a fault must show
        if planted and index >= cases:
            break
        target = targets[key(index, op) % len(targets)]
        case = build_case(target, HashChoices(key(index, target.id), {}))
        trial = Trial(target, case, session.engine)
        found = witness(trial, judge(trial))
        if found is None:
            continue
        for fault in faults(found, op, target.platform.platform, session.engine):
            planted += 1
            with fault.block():
                verdicts = judge(Trial(target, case, fault.engine(session.engine)))
            assert {v.check for v in verdicts if v.failing} & set(fault.checks), (target.id, fault.what, case)
    assert planted


@pytest.mark.parametrize("kind", [torch.uint8, torch.int8, torch.int32])
def test_a_fault_shows_in_codes_of_a_narrow_type(session: Session, kind: torch.dtype) -> None:
    """A step of 2**20 is 0 in 8 bits: argmax's indices, which take that step, came out right."""
    target = session.all_targets(session.library.spec("argmax"))[0]
    trial = Trial(target, build_case(target, HashChoices(key(0, target.id), {})), session.engine)
    found = witness(trial, judge(trial))
    assert found is not None
    own = REGISTRY.get("argmax", "quantized", target.platform.places)
    narrow = REGISTRY.overridden("argmax", "quantized", lambda *a, **n: own(*a, **n).to(kind), None)
    with narrow:
        planted = [
            one for one in faults(found, "argmax", target.platform.platform, session.engine) if one.checks[0] in CODES
        ]
        assert planted
        for fault in planted:
            with fault.block():
                assert any(v.failing for v in judge(Trial(target, found.case, session.engine), fault.checks))
