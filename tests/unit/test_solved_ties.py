"""The biases of ties are solved for the sums of the codes that the platform's own quantizer gives."""

from __future__ import annotations

import numpy as np
import pytest

from quantizer.conformance.generation.builder import build_case
from quantizer.conformance.generation.choice_sources import HashChoices
from quantizer.conformance.generation.examples import example_case
from quantizer.conformance.target import Target
from quantizer.conformance.trials.trial import Trial
from quantizer.core.library import load_library
from quantizer.core.schemes import Scheme
from quantizer.ops import load_built_ins
from quantizer.runtime.engines.builtin import BuiltinEngine

LIBRARY = load_library()
load_built_ins()
CASES = 4
PLATFORMS = {
    "quantizes weights half to even": ("ideal", "w8a8"),
    "half away from zero": ("tflite_ref", "w8pta8"),
    "cuts the largest weight": ("ideal", "w8a8_pow2"),
    "weights with zero points": ("tpulang", "w8asyma8"),
}


@pytest.mark.parametrize(("platform", "scheme"), PLATFORMS.values(), ids=PLATFORMS)
def test_each_channel_has_a_sum_on_a_tie_or_one_unit_beside_it(platform: str, scheme: str):
    target = Target(LIBRARY.spec("fully_connected"), LIBRARY.schemes[scheme], LIBRARY.platforms[platform])
    row = {"data": "ties", "with_bias": "yes", "activation": "none"}
    for index in range(CASES):
        trial = Trial(target, build_case(target, HashChoices(index, row)), BuiltinEngine())
        share = trial.parameters.constants["bias"].params.scale.double() / trial.output.scale.double()
        assert (np.abs(trial.sums * share.numpy() % 1 - 0.5) <= share.numpy()).any(axis=0).all()


@pytest.mark.parametrize("part", ["restricted", "full"])
def test_a_zero_point_for_each_channel_leaves_ties_on_both_sides_of_0(part: str):
    """A channel of one weight has a scale of its own. On such targets a kernel that rounded ties up passed."""
    known = LIBRARY.schemes["w8asyma8"]
    assert known.weight is not None
    weight = known.weight.model_copy(update={"granularity": "channel", "range": part})
    scheme = Scheme(name="w8z", activation=known.activation.model_copy(update={"bits": 6}), weight=weight)
    target = Target(LIBRARY.spec("conv2d"), scheme, LIBRARY.platforms["ideal"])
    tied = next(one for one in target.spec.examples if one.id == "ties_past_float32")
    trial = Trial(target, example_case(target, tied), BuiltinEngine())
    rescale = trial.parameters.rescale
    assert rescale is not None
    rest = trial.sums * trial.per_channel(rescale.mantissa) / rescale.divisor
    found = rest[rest % 1 == 0.5]
    assert found.size > 1 and found.min() < 0 < found.max()


@pytest.mark.parametrize("scheme", ["w8a8", "w4a8", "w8pta8"])
@pytest.mark.parametrize("op", ["fully_connected", "conv2d"])
def test_an_example_of_ties_has_ties_under_each_format_of_weights(op: str, scheme: str):
    """The example's range of weights is a power of two times the last code of one format only."""
    target = Target(LIBRARY.spec(op), LIBRARY.schemes[scheme], LIBRARY.platforms["ideal"])
    tied = next(one for one in target.spec.examples if one.id == "ties_past_float32")
    trial = Trial(target, example_case(target, tied), BuiltinEngine())
    rescale = trial.parameters.rescale
    assert rescale is not None
    rest = trial.sums * trial.per_channel(rescale.mantissa) / rescale.divisor
    assert (rest % 1 == 0.5).any()
