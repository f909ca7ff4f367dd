"""The biases of ties are solved for the sums of the codes that the platform's own quantizer gives."""

from __future__ import annotations

import numpy as np
import pytest

from quantizer.conformance.generation.builder import build_case
from quantizer.conformance.generation.choice_sources import HashChoices
from quantizer.conformance.target import Target
from quantizer.conformance.trials.trial import Trial
from quantizer.core.library import load_library
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
