"""A plugin that computes what the built-in functions compute is as green as they are, on every operator and platform."""

from pathlib import Path

import pytest

from quantizer.conformance.generation.builder import build_case
from quantizer.conformance.generation.choosers import HashChooser
from quantizer.conformance.generation.hashing import key
from quantizer.conformance.judge import judge
from quantizer.conformance.options import Options
from quantizer.conformance.session import open_session
from quantizer.conformance.trial import Trial
from quantizer.numerics.parameters import default_parameters
from quantizer.ops import REGISTRY

SESSION = open_session(Options(root=Path.cwd()))


def cases(target):
    for name in ("ties", "random", "saturation"):
        row = {"data": name} if name in target.spec.data else {}
        yield build_case(target, HashChooser(key(3, "plugin", name, target.id), row))


def plugins_own(kind, op, platform):
    entry = REGISTRY.find(op, kind, platform)
    return entry.function if entry else default_parameters


@pytest.mark.parametrize("kind", ["quantized", "quantize"])
@pytest.mark.parametrize("op", SESSION.library.specs)
def test_no_alarm_on_the_built_in_functions_as_a_plugin(op, kind):
    for target in SESSION.all_targets(SESSION.library.spec(op)):
        platform = target.platform.platform
        with REGISTRY.overridden(op, kind, plugins_own(kind, op, platform), platform):
            for case in cases(target):
                failing = [v for v in judge(Trial(target, case, SESSION.engine)) if v.failing]
                assert not failing, (case.to_json(), failing[0])
