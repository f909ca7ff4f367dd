"""The power-of-two rule: the smallest power that covers the range, with its zero point."""

from __future__ import annotations

import math

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from quantizer.conformance.expected import parameters as expected_parameters
from quantizer.core.platform_settings import ParameterRule
from quantizer.core.schemes import ActivationPart
from quantizer.numerics.rules import activation_params

ENDS = st.floats(-1e6, 1e6, allow_subnormal=False)
PARTS = st.builds(
    ActivationPart,
    bits=st.sampled_from([4, 8]),
    symmetry=st.sampled_from(["symmetric", "asymmetric"]),
    range=st.sampled_from(["full", "restricted"]),
    rule=st.just("power_of_two"),
)
RULES = st.builds(
    ParameterRule, scale=st.sampled_from(["float64", "float32", "float32_steps"]), minimum_range=st.just(2.0**-23)
)


@given(ENDS, ENDS, PARTS, RULES)
def test_the_power_of_two_rule_equals_its_reference(
    a: float, b: float, part: ActivationPart, rule: ParameterRule
) -> None:
    low, high = min(a, b), max(a, b)
    chosen = activation_params(low, high, part, rule, signed=True)
    expected = expected_parameters.activation((low, high), part, rule, signed=True)
    assert float(chosen.scale) == float(expected.scale)
    assert int(chosen.zero_point) == int(expected.zero_point)


@given(ENDS, ENDS, PARTS)
def test_the_scale_is_the_smallest_power_covering_the_range(a: float, b: float, part: ActivationPart) -> None:
    low, high = min(a, b, 0.0), max(a, b, 0.0)
    chosen = activation_params(low, high, part, ParameterRule(scale="float64"), signed=True)
    scale, zero = float(chosen.scale), int(chosen.zero_point)
    assert math.frexp(scale)[0] == 0.5
    if high - low < 1e-30:
        return
    width = 2 * max(-low, high) if part.symmetry == "symmetric" else high - low
    codes = chosen.qmax - chosen.qmin
    assert scale * codes >= width > scale / 2 * codes * (1 - 2**-50)
    ends = np.array([(chosen.qmin - zero) * scale, (chosen.qmax - zero) * scale])
    slack = 0.0 if part.symmetry == "symmetric" and part.range == "restricted" else scale
    assert ends[0] <= low + slack
    assert ends[1] >= high - slack
