"""A plugin that computes the same as the built-in functions passes on every operator and platform."""

from pathlib import Path

import pytest

from quantizer.conformance.generation.builder import build_case
from quantizer.conformance.generation.choice_sources import HashChoices
from quantizer.conformance.generation.hashing import key
from quantizer.conformance.judging.judge import judge
from quantizer.conformance.setup.options import Options
from quantizer.conformance.setup.session import open_session
from quantizer.conformance.trials.trial import Trial
from quantizer.numerics.parameters import default_parameters
from quantizer.ops import REGISTRY

SESSION = open_session(Options(root=Path.cwd()))
KINDS = ("quantized", "quantize")
DATA = ("ties", "random", "saturation")


def cases(target, names):
    for name in names:
        row = {"data": name} if name in target.spec.data else {}
        yield build_case(target, HashChoices(key(3, "plugin", name, target.id), row))


def plugins_own(kind, op, platform):
    entry = REGISTRY.find(op, kind, platform)
    return entry.function if entry else default_parameters


@pytest.mark.parametrize("everything", [False, pytest.param(True, marks=pytest.mark.nightly)])
@pytest.mark.parametrize("op", SESSION.library.specs)
def test_no_alarm_on_the_built_in_functions_as_a_plugin(op, everything):
    """Every target has one kind of function and a case of one data set, the next target the next; at night all of them."""
    for index, target in enumerate(SESSION.all_targets(SESSION.library.spec(op))):
        kinds = KINDS if everything else [KINDS[index % len(KINDS)]]
        data = DATA if everything else [DATA[index % len(DATA)]]
        platform = target.platform.platform
        for kind in kinds:
            with REGISTRY.overridden(op, kind, plugins_own(kind, op, platform), platform):
                for case in cases(target, data):
                    failing = [v for v in judge(Trial(target, case, SESSION.engine)) if v.failing]
                    assert not failing, (case.to_json(), failing[0])
