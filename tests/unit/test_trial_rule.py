"""The built-in rule of a trial: it runs once where it is under test, and what it provided is safe from a forward."""

from dataclasses import replace
from pathlib import Path

import pytest
import torch

from quantizer.conformance.generation.stacks import row_case
from quantizer.conformance.setup.options import Options
from quantizer.conformance.setup.session import open_session
from quantizer.conformance.trials.parts import parts_of
from quantizer.conformance.trials.provided import provided_tensors
from quantizer.conformance.trials.trial import Trial
from quantizer.numerics.bitwise import bitwise_equal
from quantizer.numerics.parameters import default_parameters
from quantizer.ops import REGISTRY

SESSION = open_session(Options(root=Path.cwd()))
TARGET = next(t for t in SESSION.all_targets(SESSION.library.specs["conv2d"]) if t.id == "conv2d-w8a8-compass")


@pytest.fixture
def trial():
    return Trial(TARGET, row_case(TARGET, 0, {}), SESSION.engine)


def memory(parameters):
    return {values.data_ptr() for values in provided_tensors(parameters).values() if values.numel()}


def test_the_rule_under_test_is_not_run_again(trial):
    ran = trial.parameters
    assert bitwise_equal(trial.built_in, default_parameters(trial._request()))
    assert memory(trial.built_in).isdisjoint(memory(ran))


def test_the_rule_runs_again_after_the_forward(trial):
    wanted = default_parameters(trial._request())
    _ = trial.outcome
    trial.parameters.outputs["y"].scale.mul_(2.0)
    assert bitwise_equal(trial.built_in, wanted)


def test_a_replaced_rule_is_not_the_builtin_one(trial):
    def doubled(request):
        found = default_parameters(request)
        y = found.outputs["y"]
        return replace(found, outputs={"y": replace(y, scale=y.scale * 2.0)})

    scale = float(trial.output.scale)
    other = Trial(TARGET, trial.case, SESSION.engine)
    with REGISTRY.overridden("conv2d", "quantize", doubled, "compass"):
        assert float(other.parameters.outputs["y"].scale) == 2.0 * scale
        assert float(other.built_in.outputs["y"].scale) == scale


def test_a_sole_plugin_rule_is_not_the_builtin_one(trial):
    assert REGISTRY.find("conv2d", "quantize", "compass") is None, "a built-in rule would hide the plugin's"
    with REGISTRY.overridden("conv2d", "quantize", default_parameters, "compass", origin="a plugin"):
        other = Trial(TARGET, trial.case, SESSION.engine)
        _ = other.parameters
        assert other.built_in is None


def test_a_trial_with_given_parameters_keeps_those_of_the_rule(trial):
    other = Trial(TARGET, trial.case, SESSION.engine)
    other.provide(replace(trial.parameters, accumulator_bits=7))
    assert other.built_in.accumulator_bits == trial.parameters.accumulator_bits


def test_parts_of_a_stack_are_refused_as_the_whole_is():
    case = next(case for case in (row_case(TARGET, i, {}) for i in range(9)) if case.data.stack is not None)
    whole = Trial(TARGET, case, SESSION.engine)
    assert whole.refusal is None
    for place, part in enumerate(parts_of(whole)):
        alone = Trial(TARGET, part.case, SESSION.engine)
        assert part.refusal == alone.refusal, place
        assert "built_in" not in part.__dict__


def test_copied_parameters_have_equal_numbers_in_other_memory(trial):
    made = trial.parameters.copied()
    assert bitwise_equal(made, trial.parameters)
    assert memory(made).isdisjoint(memory(trial.parameters))
    assert all(
        torch.equal(a, b)
        for a, b in zip(*(provided_tensors(p).values() for p in (made, trial.parameters)), strict=True)
    )
