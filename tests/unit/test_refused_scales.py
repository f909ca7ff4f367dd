"""Scales beyond a platform's multipliers: refused if the rule gives them, a failure if a plugin does."""

import json
from dataclasses import replace
from pathlib import Path

from quantizer.conformance.judging.judge import judge
from quantizer.conformance.setup.options import Options
from quantizer.conformance.setup.session import open_session
from quantizer.conformance.trials.trial import Trial
from quantizer.core.case import Case
from quantizer.numerics.parameters import default_parameters
from quantizer.ops import REGISTRY

SESSION = open_session(Options(root=Path.cwd()))
STORED = next(Path("quantizer/platforms/tosa/cases/regressions").glob("minimum-a8-tosa-7245464dc293.json"))


def judged(case):
    targets = SESSION.all_targets(SESSION.library.spec(case.op))
    target = next(target for target in targets if target.id == "minimum-a8-tosa")
    return judge(Trial(target, case, SESSION.engine))


def stored():
    return Case.from_json(json.dumps(json.loads(STORED.read_text())["case"]), str(STORED))


def test_scales_of_the_rule_are_refused():
    (verdict,) = judged(stored())
    assert (verdict.check, verdict.status) == ("engine", "inconclusive")


def test_a_too_small_scale_of_a_plugin_fails():
    ordinary = stored().but(ranges={"a": (-1.0, 1.0), "b": (-1.0, 1.0), "y": (-1.0, 1.0)})
    assert not any(
        verdict.failing or verdict.status == "inconclusive"
        for verdict in judged(ordinary)
        if verdict.check != "round_trip"
    )

    def tiny(request):
        found = default_parameters(request)
        return replace(found, outputs={"y": replace(found.outputs["y"], scale=found.outputs["y"].scale * 2.0**-40)})

    with REGISTRY.overridden("minimum", "quantize", tiny, "tosa"):
        first = judged(ordinary)[0]
    assert (first.check, first.failing) == ("parameters", True)
    assert "raised" not in first.reason
