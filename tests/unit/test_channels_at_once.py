"""Numbers of many channels that the check `parameters` judges at once: the same verdict as one channel at a time."""

from dataclasses import replace
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest

from quantizer.conformance.checks import multiplier_parameters
from quantizer.conformance.expected import weights
from quantizer.conformance.generation.builder import build_case
from quantizer.conformance.generation.choice_sources import HashChoices
from quantizer.conformance.generation.hashing import uniform
from quantizer.conformance.judging.judge import judge
from quantizer.conformance.setup.options import Options
from quantizer.conformance.setup.session import open_session
from quantizer.conformance.trials.trial import Trial
from quantizer.core.platform_settings import ParameterRule
from quantizer.core.schemes import WeightPart

SESSION = open_session(Options(root=Path.cwd()))
TARGETS = {t.id: t for op in ("conv2d", "depthwise_conv2d") for t in SESSION.all_targets(SESSION.library.spec(op))}


def trial_with_channels(name: str) -> Trial:
    """Return a trial with several multipliers."""
    target = TARGETS[name]
    made = (Trial(target, build_case(target, HashChoices(seed, {})), SESSION.engine) for seed in range(30))
    return next(trial for trial in made if trial.parameters.rescale.mantissa.numel() > 2)


@pytest.mark.parametrize("name", ["conv2d-w8a8-ideal", "depthwise_conv2d-w8a8-ideal", "conv2d-w8a8-xnnpack"])
def test_all_channels_at_once_have_the_verdict_of_one_after_the_other(name, monkeypatch):
    at_once = judge(trial_with_channels(name), ("parameters",))
    monkeypatch.setattr(multiplier_parameters, "_all_right", lambda *_: False)
    assert at_once == judge(trial_with_channels(name), ("parameters",))
    assert at_once[0].status == "pass"


@pytest.mark.parametrize("name", ["conv2d-w8a8-ideal", "conv2d-w8a8-xnnpack"])
def test_a_channel_whose_multiplier_is_off_by_one_bit_is_named(name):
    trial = trial_with_channels(name)
    rescale = trial.parameters.rescale
    wrong = rescale.mantissa.clone()
    wrong[1] = float(np.nextafter(float(wrong[1]), np.inf))
    trial.parameters = replace(trial.parameters, rescale=replace(rescale, mantissa=wrong))
    (verdict,) = judge(trial, ("parameters",))
    assert (verdict.status, verdict.failed, verdict.worst.tensor) == ("fail", 1, "multiplier[1]")


def test_a_rounded_product_of_scales_is_not_right():
    """The exact ratio needs more bits than float64 has, so the nearest float64 is not the ratio."""
    scales = [np.full(3, 1 + 2.0**-40), np.full(3, 1 + 2.0**-30)]
    nearest = scales[0] * scales[1]
    assert Fraction(nearest[0]) != Fraction(scales[0][0]) * Fraction(scales[1][0])
    trial = trial_with_channels("conv2d-w8a8-ideal")
    assert not multiplier_parameters._all_right(trial, trial.parameters.rescale, nearest, np.zeros(3), scales)


@pytest.mark.parametrize("group", [None, 1, 3])
@pytest.mark.parametrize("axis", [0, 1])
def test_channels_of_a_group_have_the_numbers_of_its_extrema(axis, group):
    values = uniform(5, "values", (7, 5, 2)) - 0.5
    part = WeightPart(bits=8, symmetry="asymmetric", granularity="channel")
    found = weights.weight(values, part, ParameterRule(), axis, group)
    whole = part.model_copy(update={"granularity": "tensor"})
    size, rows = group or 1, np.moveaxis(values, axis, 0)
    for channel in range(len(rows)):
        first = channel // size * size
        alone = weights.weight(rows[first : first + size], whole, ParameterRule(), None)
        assert (found.scale[channel], found.zero_point[channel]) == (alone.scale, alone.zero_point)
