"""A declared defect of integer tiles does not excuse float tiles."""

from pathlib import Path

import pytest

from quantizer.conformance.judging.known_defects import known_defect
from quantizer.conformance.setup.options import Options
from quantizer.conformance.setup.session import open_session
from quantizer.conformance.stored.files import read_replay
from quantizer.conformance.stored.fitting import target_of
from quantizer.conformance.trials.trial import Trial
from quantizer.runtime.engines.builtin import BuiltinEngine

ROOT = Path(__file__).parents[2]
NAME = "defects/ort-avg_pool_one_window_rounds_differently.json"


class OtherFloats(BuiltinEngine):
    """Our functions with shifted float results."""

    def __init__(self, off: float) -> None:
        self.off = off

    def run_float(self, call, operands):
        return super().run_float(call, operands) + self.off


@pytest.mark.parametrize(("off", "excused"), [(0.0, True), (9.0, False)])
def test_a_defect_of_integer_tiles_does_not_excuse_float_tiles(off: float, excused: bool):
    library = open_session(Options(root=ROOT, platforms=("ort",))).library
    case = read_replay(ROOT / "quantizer/platforms/onnxruntime/cases" / NAME).case
    trial = Trial(target_of(library, case, NAME), case, OtherFloats(off))
    assert (known_defect(trial, "tiled") is not None) == excused
