"""Stored cases that platform compass gets wrong by declaration pass on platform ideal."""

from __future__ import annotations

import pytest

from quantizer.conformance.judging.judge import judge
from quantizer.conformance.stored.files import read_replay
from quantizer.conformance.stored.fitting import target_of
from quantizer.conformance.trials.trial import Trial
from quantizer.core.case import Case
from quantizer.core.defects import Defect
from quantizer.core.library import load_library
from quantizer.core.rooms import room_of
from quantizer.numerics.rules import activation_params
from quantizer.ops import load_built_ins
from quantizer.runtime.engines.builtin import BuiltinEngine

LIBRARY = load_library()
CASES = room_of("compass").cases
DEFECTS = [pytest.param(defect, id=defect.id) for defect in LIBRARY.platform("compass").defects]


@pytest.fixture(scope="module", autouse=True)
def _operators() -> None:
    load_built_ins()


def test_a_softmax_tile_of_128_rows_is_a_declared_defect() -> None:
    """A campaign found it: the whole has 192 rows, its first tile 128."""
    case = Case.from_json(
        '{"attrs":{"axis":-3},"data":{"seed":1969813,"set":"random"},"op":"softmax","order":"channels_first",'
        '"platform":"compass","ranges":{"x":[-0.0991,0.1196],"y":[0.0,0.2198]},"scheme":"a8s",'
        '"shapes":{"x":[5,64,3]},"tiles":{"d2":2},"version":1}',
        "the test",
    )
    trial = Trial(target_of(LIBRARY, case, "the test"), case, BuiltinEngine())
    (tiled,) = [verdict for verdict in judge(trial) if verdict.check == "tiled"]
    assert tiled.status == "defect"
    assert tiled.reason.startswith("batch_dependent_softmax: ")


@pytest.mark.parametrize("defect", DEFECTS)
def test_ideal_passes_the_defect_cases_of_compass(defect: Defect) -> None:
    """The platform has no fast form: it takes the usual one."""
    case = read_replay(CASES / defect.case).case
    verdicts = {}
    for platform in ("compass", "ideal"):
        fast = platform == "ideal" and case.scheme.endswith("fast")
        own = case.but(platform=platform, scheme=case.scheme.removesuffix("fast") if fast else case.scheme)
        trial = Trial(target_of(LIBRARY, own, defect.case), own, BuiltinEngine())
        verdicts[platform] = {verdict.check: verdict.status for verdict in judge(trial)}
    assert any(verdicts["compass"].get(check) == "defect" for check in defect.checks)
    assert not {"fail", "defect"} & set(verdicts["ideal"].values())


def test_the_clamped_zero_point_costs_one_step() -> None:
    part = LIBRARY.schemes["a8"].activation
    for name, end in (("compass", 254 / 255), ("ideal", 1.0)):
        params = activation_params(0.0, 1.0, part, LIBRARY.platform(name).parameters, signed=True)
        assert float((params.qmax - params.zero_point) * params.scale) == pytest.approx(end, rel=1e-6)
