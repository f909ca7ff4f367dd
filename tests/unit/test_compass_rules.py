"""Rules of platform `compass` without recorded runs, from first principles; the range estimators."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from quantizer.calibration.extrema import Extrema, extrema
from quantizer.calibration.mean import Mean, mean
from quantizer.conformance.checks.parameters import parameters
from quantizer.conformance.expected import multipliers as expected_multipliers
from quantizer.conformance.target import Target
from quantizer.conformance.trials.trial import Trial
from quantizer.core.case import AttrValue, Case, DataRecipe, TilePlan
from quantizer.core.errors import GraphError
from quantizer.core.library import load_library
from quantizer.core.schemes import ActivationPart, Scheme, WeightPart
from quantizer.numerics.quantize import quantize
from quantizer.numerics.ratio_to_multiplier import float32_multiplier, unify_shifts
from quantizer.numerics.request import Request
from quantizer.numerics.rounding import splitmix64
from quantizer.numerics.rules import activation_params
from quantizer.ops import load_built_ins
from quantizer.runtime.engines.builtin import BuiltinEngine
from quantizer.runtime.engines.protocol import Call

LIBRARY = load_library()
PLATFORM = LIBRARY.platform("compass")
CONV = LIBRARY.spec("conv2d")
DENSE: dict[str, AttrValue] = {"stride": (1, 1), "padding": (0, 0, 0, 0), "dilation": (1, 1), "groups": 1}
load_built_ins()


@pytest.mark.parametrize(
    ("low", "high", "symmetry", "codes", "steps", "zero"),
    [
        (-1.0, 1.0, "symmetric", "restricted", 127.0, 0),
        (-1.0, 1.0, "symmetric", "full", 127.5, 0),
        (-1.0, 1.0, "asymmetric", "full", 127.5, 0),
        (-1.0, 2.0, "asymmetric", "full", 85.0, 43),
        (0.0, 6.0, "asymmetric", "full", 42.5, 127),
        (-3.7, 0.0, "asymmetric", "full", 255 / float(np.float32(3.7)), -127),
        (0.0, 0.0, "asymmetric", "full", 1.0, 127),
    ],
)
def test_measured_scales_and_zero_points(
    low: float, high: float, symmetry: Any, codes: Any, steps: float, zero: int
) -> None:
    """Signed codes of 8 bits: Compass's zero point, the negated one, stays within +-127."""
    part = ActivationPart(bits=8, symmetry=symmetry, range=codes)
    found = activation_params(low, high, part, PLATFORM.parameters, signed=True)
    assert found.steps is not None
    assert (float(found.steps), -int(found.zero_point)) == (float(np.float32(steps)), zero)


def test_ties_of_quantize_depend_on_the_parity_of_the_zero_point() -> None:
    """Compass rounds steps * x - zp half to even: 0.5 + 1 is 2, 1.5 + 1 is 2."""
    odd = activation_params(-127.0, 128.0, ActivationPart(bits=8), PLATFORM.parameters, signed=True)
    even = activation_params(-126.0, 129.0, ActivationPart(bits=8), PLATFORM.parameters, signed=True)
    x = torch.tensor([-0.5, 0.5, 1.5, 2.5])
    assert (int(odd.zero_point), int(even.zero_point)) == (-1, -2)
    assert quantize(x, odd, PLATFORM.quantizer).tolist() == [-2, 0, 0, 2]
    assert quantize(x, even, PLATFORM.quantizer).tolist() == [-2, -2, 0, 0]


def test_a_multiplier_has_15_bits_at_most() -> None:
    """16 bits, unit steps of input and weight, 3/4 of a step per unit for the output."""
    activation = ActivationPart(bits=16, symmetry="symmetric")
    scheme = Scheme(name="drawn", activation=activation, weight=WeightPart(bits=16, granularity="tensor"))
    shapes: dict[str, tuple[int, ...]] = {"x": (1, 1, 1, 1), "weight": (1, 1, 1, 1)}
    ranges = {"x": (-32767.5, 32767.5), "y": (-43690.0, 43690.0)}
    weight = {"weight": torch.full((1, 1, 1, 1), 32767.0)}
    ratio = BuiltinEngine().quantize(Request(CONV, scheme, PLATFORM, shapes, DENSE, ranges, weight)).rescale
    assert ratio is not None
    assert (float(ratio.mantissa), int(ratio.shift)) == (24576.0, 15)


@pytest.mark.parametrize("bits", [8, 16])
@pytest.mark.parametrize("seed", range(50))
def test_add_multipliers_equal_their_reference(seed: int, bits: int) -> None:
    """Ranges of 2**-16 to 2**16, so that factors are shrunk and shifts would be negative."""
    hashed = splitmix64(torch.arange(3) + 100 * seed)
    ends = ((1.0 + (hashed >> 33).abs().double() * 2.0**-31) * torch.exp2((hashed % 33 - 16).double())).float().tolist()
    ranges = {name: (-end, end) for name, end in zip("aby", ends, strict=True)}
    scheme = Scheme(name="drawn", activation=ActivationPart(bits=bits, symmetry="symmetric"))
    made = BuiltinEngine().quantize(Request(LIBRARY.spec("add"), scheme, PLATFORM, {"a": (1,), "b": (1,)}, {}, ranges))
    params = [made.inputs["a"], made.inputs["b"], made.outputs["y"]]
    a, b, y = (np.float32(p.steps.item()) for p in params if p.steps is not None)
    ratio = made.rescale
    assert ratio is not None
    found = (float(ratio.mantissa), int(ratio.shift), ratio.factors["a"], ratio.factors["b"])
    assert found == expected_multipliers.crossed_sum(a, b, y, min(bits, PLATFORM.multiplier.max_bits), equal_zero=True)


TINY = 127 * 2.0**-20
"""A weight whose steps are 2**20: beside a channel of 127 its multiplier of 8 bits would be 128 >> 13."""


@pytest.mark.parametrize(
    ("weights", "groups", "granularity", "steps", "mantissas", "shift"),
    [
        ([127, 63.5, 127, 63.5], 1, "channel", [1, 2, 1, 2], [256, 128, 256, 128], 8),
        ([127, TINY, 63.5, 31.75], 1, "channel", [1, 1, 2, 2], [256, 256, 128, 128], 8),
        ([127, 127, TINY, TINY], 1, "channel", [1, 1, 1, 1], [1, 1, 1, 1], 0),
        ([127, TINY, 127, 63.5, 63.5], 1, "channel", [1, 1, 1, 2, 2], [256, 256, 256, 128, 128], 8),
        ([127, TINY, 63.5, 63.5], 2, "tensor", [1, 1, 2, 2], [256, 256, 128, 128], 8),
        ([127, 127, TINY, TINY], 2, "tensor", [1, 1, 1, 1], [1, 1, 1, 1], 0),
    ],
    ids=["enough", "pairs", "all", "last_group_smaller", "groups", "groups_to_all"],
)
def test_weight_groups_are_merged_if_a_multiplier_would_be_0(
    weights: list[float], groups: int, granularity: Any, steps: list[float], mantissas: list[int], shift: int
) -> None:
    """One weight per channel and unit steps of input and output: the ratio of a channel is 1 / its weight steps.

    8 bits: 1 is 128 * 2**-7, 1/2 is 128 * 2**-8, 2**-20 is 128 * 2**-27. One shift for 1 and 2**-20 is 14, at which 1 is
    2**14 and 2**-20 nothing. Halved are the groups, rounded down; a group has the rounded-up share of channels.
    """
    channels, tensor = len(weights), torch.tensor(weights, dtype=torch.float32).reshape(-1, 1, 1, 1)
    part, symmetric = WeightPart(bits=8, granularity=granularity), ActivationPart(bits=8, symmetry="symmetric")
    call = Call(CONV, DENSE | {"groups": groups})
    ranges = {"x": (-127.5, 127.5), "y": (-127.5, 127.5)}
    asked = Request(
        call.spec,
        Scheme(name="drawn", activation=symmetric, weight=part),
        PLATFORM,
        {"x": (1, groups, 1, 1), "weight": (channels, 1, 1, 1)},
        call.attrs,
        ranges,
        {"weight": tensor},
    )
    made = BuiltinEngine().quantize(asked)
    weight, ratio = made.constants["weight"], made.rescale
    assert ratio is not None
    assert weight.params.steps is not None
    assert weight.params.steps.tolist() == steps
    assert weight.codes.flatten().tolist() == [round(w * s) for w, s in zip(weights, steps, strict=True)]
    assert (ratio.mantissa.tolist(), ratio.shift.tolist()) == (mantissas, [shift] * channels)
    plan, recipe = TilePlan({}), DataRecipe("given", 0)
    case = Case("conv2d", "drawn", "compass", asked.shapes, call.attrs, ranges, call.order, plan, recipe)
    trial = Trial(Target(call.spec, asked.scheme, PLATFORM), case, BuiltinEngine())
    trial.tensors = {"x": torch.ones(1, groups, 1, 1), "weight": tensor}
    assert parameters(trial).status == "pass"


def test_a_shared_shift_may_be_negative() -> None:
    """Ratios of 40,000 and 50,000 need 16 bits: 15 are kept, and both the rule and its restatement shift left by one."""
    mantissas, shifts = unify_shifts(*float32_multiplier(torch.tensor([40000.0, 50000.0]), 8))
    assert (mantissas.tolist(), shifts.tolist()) == ([19968, 24960], [-1, -1])
    assert expected_multipliers.unified([np.float32(40000.0), np.float32(50000.0)], 8) == [(19968.0, -1), (24960.0, -1)]


def test_ties_of_a_convolution_do_not_depend_on_the_zero_point() -> None:
    """Unit steps, y of half a step per unit and zero points of -1: sums of 1, 3, 5 are 0.5, 1.5, 2.5, then the zero point."""
    scheme = Scheme(name="drawn", activation=ActivationPart(bits=8), weight=WeightPart(bits=8, granularity="tensor"))
    call = Call(CONV, DENSE)
    ranges, weights = {"x": (-127.0, 128.0), "y": (-254.0, 256.0)}, torch.tensor([127.0, 1.0]).reshape(2, 1, 1, 1)
    shapes = {"x": (1, 1, 1, 3), "weight": (2, 1, 1, 1)}
    made = BuiltinEngine().quantize(
        Request(call.spec, scheme, PLATFORM, shapes, call.attrs, ranges, {"weight": weights})
    )
    codes = {"x": torch.tensor([0, 2, 4]).reshape(1, 1, 1, 3), "weight": made.constants["weight"].codes}
    assert (int(made.inputs["x"].zero_point), int(made.outputs["y"].zero_point)) == (-1, -1)
    assert BuiltinEngine().run(call, codes, made).codes[0, 1, 0].tolist() == [-1, 1, 1]


@pytest.mark.parametrize("select_last", [False, True])
@pytest.mark.parametrize("scheme", ["a8", "a16"])
def test_argmax_of_codes(scheme: str, *, select_last: bool) -> None:
    """Indices are uint16 codes of scale 1; equal codes give the first one, or the last with select_last."""
    spec, part = LIBRARY.spec("argmax"), LIBRARY.scheme(scheme)
    attrs: dict[str, AttrValue] = {"axis": 1, "keepdims": True, "select_last": select_last}
    codes = splitmix64(torch.arange(64 * 9)).reshape(64, 9) % 7 - 3
    made = BuiltinEngine().quantize(Request(spec, part, PLATFORM, {"x": (64, 9)}, attrs, {"x": (-1.0, 2.0)}))
    y = made.outputs["y"]
    assert (y.dtype.name, float(y.scale), int(y.zero_point), y.qmin, y.qmax) == ("uint16", 1.0, 0, 0, 65535)
    got = BuiltinEngine().run(Call(spec, attrs), {"x": codes}, made).codes
    places = [[i for i, c in enumerate(row) if c == max(row)] for row in codes.tolist()]
    assert max(len(found) for found in places) > 1
    assert got.tolist() == [[found[-1] if select_last else found[0]] for found in places]


AXIS: dict[str, AttrValue] = {"axis": 1}


@pytest.mark.parametrize(
    ("scheme", "rows", "stage"), [("a8", 128, "quotient"), ("a8", 127, "reciprocal"), ("a16", 128, "reciprocal")]
)
def test_softmax_divides_first_only_on_a_short_axis_of_8_bits(scheme: str, rows: int, stage: str) -> None:
    spec, attrs = LIBRARY.spec("softmax"), AXIS
    ranges = {"x": (-4.0, 4.0), "y": (0.0, 1.0)}
    made = BuiltinEngine().quantize(Request(spec, LIBRARY.scheme(scheme), PLATFORM, {"x": (rows, 3)}, attrs, ranges))
    codes = torch.arange(rows * 3).reshape(rows, 3) % 50
    assert set(BuiltinEngine().run(Call(spec, attrs), {"x": codes}, made).stages) == {"exp", stage}


def hashed_batches(seed: int, shift: float) -> list[Tensor]:
    """Return six float32 batches around *shift*, each of its own size from 2**-8 to 2**7."""
    whole = splitmix64(torch.arange(6 * 16) + 1000 * seed).reshape(6, 16)
    sizes = torch.exp2((whole[:, :1] % 16 - 8).double())
    return list((whole[:, 1:].double() * 2.0**-63 * sizes + shift).to(torch.float32))


@pytest.mark.parametrize("shift", [0.0, 1e5, -1e5])
@pytest.mark.parametrize("seed", range(20))
def test_estimators_are_their_float32_definitions(seed: int, shift: float) -> None:
    """Numpy restatements: a fold of ends, and r = 0.9 r + 0.1 e from the first batch on, each step in float32."""
    batches = hashed_batches(seed, shift)
    lows, highs = ([f(b.numpy()) for b in batches] for f in (np.min, np.max))
    assert extrema(batches) == (min(0.0, float(min(lows))), max(0.0, float(max(highs))))
    averages = []
    for column in (lows, highs):
        running = column[0]
        for end in column[1:]:
            running = np.float32(0.9) * running + np.float32(1.0 - 0.9) * end
        averages.append(float(running))
    assert mean(batches) == (min(0.0, averages[0]), max(0.0, averages[1]))
    assert mean(batches, momentum=0.0) == (min(0.0, float(lows[-1])), max(0.0, float(highs[-1])))


@pytest.mark.parametrize("estimator", [Extrema(), Mean()], ids=["extrema", "mean"])
def test_estimators_refuse_values_without_a_range(estimator: Extrema | Mean) -> None:
    with pytest.raises(GraphError, match="no batch was observed"):
        _ = estimator.range
    with pytest.raises(GraphError, match=r"shape \[0, 3\]: a range needs at least one value"):
        estimator.observe(torch.empty(0, 3))
    with pytest.raises(GraphError, match=r"shape \[2, 2\]: NaN at \[1, 0\]"):
        estimator.observe(torch.tensor([[0.0, 1.0], [math.nan, 2.0]]))
    assert estimator.observe(torch.tensor([-math.inf, 1e12])).range == (-(2.0**31), 2.0**31)
    with pytest.raises(GraphError, match="momentum 1.5"):
        Mean(1.5)
