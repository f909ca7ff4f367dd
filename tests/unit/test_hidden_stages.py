"""A softmax that shows no stages is judged by the platform's stages from the provided numbers, not by a wider interval."""

import math
from functools import partial
from pathlib import Path

import pytest
import torch

from quantizer.conformance.faults.cases import gate_cases
from quantizer.conformance.judging.judge import judge
from quantizer.conformance.setup.options import Options
from quantizer.conformance.setup.session import open_session
from quantizer.conformance.trials.trial import Trial
from quantizer.numerics.qparams import Staged
from quantizer.ops import REGISTRY

SESSION = open_session(Options(root=Path.cwd()))
PLATFORMS = sorted({t.platform.platform for t in SESSION.all_targets(SESSION.library.spec("softmax"))})


def hidden(platform):
    forward = REGISTRY.built_in("softmax", "quantized", platform).function

    def run(x, *, parameters, axis):
        made = forward(x, parameters=parameters, axis=axis)
        return made.codes if isinstance(made, Staged) else made

    return run


def reciprocal_first(x, *, parameters, axis, rounded=False):
    """Compass's order for long axes, here for every shape; *rounded*: its reciprocal rounded where it is floored."""
    numbers, table, output = parameters.numbers, parameters.tables.get("exp"), parameters.outputs["y"]
    if table is None or table.step != 1 or "multiplier" not in numbers:
        return hidden("compass")(x, parameters=parameters, axis=axis)
    exponentials = table.entries[x - x.amax(dim=axis, keepdim=True) - table.first]
    total = exponentials.sum(dim=axis, keepdim=True).clamp(min=1)
    enlarge = 31 - math.ceil(math.log2(max(numbers["multiplier"], 1)))
    reciprocal = ((numbers["multiplier"] << enlarge) + (total // 2 if rounded else 0)) // total
    value = (exponentials * reciprocal).double() * 2.0 ** -(numbers["shift"] + enlarge)
    return (torch.round(value).to(torch.int64) + output.zero_point).clamp(output.qmin, output.qmax)


def failures(platform, forward):
    with REGISTRY.overridden("softmax", "quantized", forward, platform):
        found = [
            verdict
            for target, case in gate_cases(SESSION, "softmax", platform)
            for verdict in judge(Trial(target, case, SESSION.engine), ("arithmetic",))
        ]
    return [verdict for verdict in found if verdict.failing]


@pytest.mark.parametrize("platform", PLATFORMS)
def test_builtin_softmax_passes_without_shown_stages(platform):
    assert not failures(platform, hidden(platform))


def test_a_rounded_reciprocal_is_found_without_stages():
    found = failures("compass", partial(reciprocal_first, rounded=True))
    assert found
    assert all("raised" not in verdict.reason for verdict in found)


def test_undeclared_stages_fail_despite_declared_defects():
    """The codes are those of the built-in functions, a defect of the platform included."""
    (target,) = (t for t in SESSION.all_targets(SESSION.library.spec("rms_norm")) if t.id == "rms_norm-w16a16-compass")
    case = next(case for own, case in gate_cases(SESSION, "rms_norm", "compass") if own.id == target.id)
    forward = REGISTRY.built_in("rms_norm", "quantized", "compass").function

    def shows(*operands, parameters, **attributes):
        made = forward(*operands, parameters=parameters, **attributes)
        return Staged(made.codes if isinstance(made, Staged) else made, {"total": torch.zeros(1, dtype=torch.int64)})

    with REGISTRY.overridden("rms_norm", "quantized", shows, "compass"):
        (verdict,) = judge(Trial(target, case, SESSION.engine), ("arithmetic",))
    assert verdict.failing
    assert "stage 'total' is shown, and nobody declared it" in verdict.reason


def test_the_platform_chooses_the_softmax_order_on_a_short_axis():
    """On 128 rows of three codes Compass divides first; the other order gives other codes, and nothing else is red."""
    found = failures("compass", reciprocal_first)
    assert found
    assert all("raised" not in verdict.reason for verdict in found)
