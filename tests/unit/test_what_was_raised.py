"""A failure of a plugin that raises says where."""

from __future__ import annotations

from pathlib import Path

from quantizer.conformance.generation.examples import example_case
from quantizer.conformance.judge import judge
from quantizer.conformance.options import Options
from quantizer.conformance.session import open_session
from quantizer.conformance.trial import Trial
from quantizer.core.wording import shown_path
from quantizer.ops import REGISTRY

SESSION = open_session(Options(root=Path.cwd()))
SPEC = SESSION.library.spec("floor")


def test_a_forward_that_raises_names_its_line():
    def quantized(x, *, parameters):
        return parameters.tables["nothing"].entries[x]

    target = SESSION.all_targets(SPEC)[0]
    trial = Trial(target, example_case(target, SPEC.examples[0]), SESSION.engine)
    with REGISTRY.overridden("floor", "quantized", quantized, target.platform.platform):
        reason = next(verdict.reason for verdict in judge(trial) if verdict.check == "arithmetic")
    place = f"{shown_path(Path(__file__))}:{quantized.__code__.co_firstlineno + 1}"
    assert reason == f"raised KeyError: 'nothing' ({place})"
