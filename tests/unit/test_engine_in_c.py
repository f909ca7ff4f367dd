"""The example of docs/engines.md: a simulator in C is compiled, judged, and a fault in it is found."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from quantizer.conformance.generation.builder import build_case
from quantizer.conformance.generation.choice_sources import HashChoices
from quantizer.conformance.judging.judge import judge
from quantizer.conformance.target import Target
from quantizer.conformance.trials.trial import Trial
from quantizer.core.library import load_library
from quantizer.ops import load_built_ins
from quantizer.runtime.engines.catalogue import chosen
from quantizer.runtime.engines.external import ExternalEngine

COMPILER = next(filter(None, map(shutil.which, ("cc", "gcc", "clang"))), None)
pytestmark = pytest.mark.skipif(COMPILER is None or os.name == "nt", reason="no compiler of C")
EXAMPLE = Path(__file__).parents[2] / "examples/engine_in_c"
load_built_ins()
LIBRARY = load_library()


@pytest.fixture()
def simulator(tmp_path):
    made = []

    def build(*flags):
        folder = tmp_path / ("faulty" if flags else "good")
        shutil.copytree(EXAMPLE, folder)
        words = [COMPILER, *flags, "-O2", "-shared", "-fPIC", "-o", "libsimulator.so", "simulator.c", "-lm"]
        subprocess.run(words, cwd=folder, check=True)
        made.append(ExternalEngine(chosen(f"{sys.executable}:{folder / 'simulator_worker.py'}")))
        return made[-1]

    yield build
    for engine in made:
        engine.close()


def verdicts(engine, op, scheme):
    target = Target(LIBRARY.spec(op), LIBRARY.scheme(scheme), LIBRARY.platform("float32_any_order"))
    assert engine.supports(target.spec, target.scheme, target.platform) is None
    cases = [build_case(target, HashChoices(seed, {"data": "random"})) for seed in range(6)]
    return [verdict for case in cases for verdict in judge(Trial(target, case, engine))]


@pytest.mark.parametrize(("op", "scheme"), [("fully_connected", "w8a8"), ("relu", "a8")])
def test_the_simulator_passes_and_its_fault_is_found(simulator, op, scheme):
    good = verdicts(simulator(), op, scheme)
    assert {"arithmetic", "accuracy", "repeat"} <= {v.check for v in good if v.status == "pass"}
    assert not [v for v in good if v.failing]
    assert {v.check for v in verdicts(simulator("-DFAULTY"), op, scheme) if v.failing} >= {"arithmetic"}
