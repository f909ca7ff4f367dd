"""Platform `compass` on operators and options without recorded runs: hand-made vectors.

Numbers come from a numpy model of the Compass Optimizer that was written from its source, without this package, and gives
every bit of the recorded runs. Both agreed on thousands of generated cases of each operator but for sums beyond the 24 bits
of float32 (3-d and transposed convolution, matrix product), whose order of additions decides, and saturated biases.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from quantizer.conformance.checks.arithmetic import arithmetic
from quantizer.conformance.checks.parameters import parameters
from quantizer.conformance.target import Target
from quantizer.conformance.trials.trial import Trial
from quantizer.core.case import Case, DataRecipe, Range, TilePlan
from quantizer.core.library import load_library
from quantizer.numerics.quantize import quantize
from quantizer.numerics.request import Request
from quantizer.ops import load_built_ins
from quantizer.runtime.engines.builtin import BuiltinEngine
from quantizer.runtime.engines.protocol import Call

LIBRARY = load_library()
PLATFORM = LIBRARY.platform("compass")
load_built_ins()


@dataclass(frozen=True)
class Vector:
    op: str
    scheme: str
    activation: str
    attrs: Mapping[str, Any]
    shapes: Mapping[str, tuple[int, ...]]
    ranges: Mapping[str, Range]
    sizes: Mapping[str, float]
    """Operand -> its largest magnitude; 1 where not named."""
    codes: list[int]
    """Of the output, in the operator's axis order."""
    numbers: tuple[list[int], list[int]] | None = None
    """scale_value and shift_value (or scale and shift) as the file has them."""
    biases: list[int] | None = None
    """As the file has them: with the input's zero point."""

    @property
    def tensors(self) -> dict[str, Tensor]:
        """Operand i: multiples of an eighth of its size, in steps of 5 + 2 i of a cycle of 17."""
        found = {}
        for place, (name, shape) in enumerate(self.shapes.items()):
            ramp = np.arange(np.prod(shape)) * (5 + 2 * place) % 17 - 8
            values = (ramp / 8 * self.sizes.get(name, 1.0)).astype(np.float32)
            found[name] = torch.from_numpy(values.reshape(shape))
        return found


VECTORS = (
    Vector(
        "conv2d", "w8pta8", "relu6", {"stride": (2, 1), "padding": (1, 0, 0, 1), "dilation": (1, 1), "groups": 2},
        {"x": (1, 4, 3, 3), "weight": (4, 2, 2, 2), "bias": (4,)},
        {"x": (-1.0, 0.75), "y": (0.0, 7.0)}, {"x": 4.0, "weight": 1.5, "bias": 2.0},
        [0, 0, 0, 0, 0, 0, 43, 115, 0, 0, 178, 0, 0, 10, 0, 0, 0, 3, 0, 39, 32, 0, 0, 85],
        ([194, 194, 194, 194], [16, 16, 16, 16]), [-23522, 2508, -19016, 2173],
    ),
    Vector(
        "conv3d", "w8a8", "relu",
        {"stride": (1, 2, 1), "padding": (1, 0, 1, 0, 1, 0), "dilation": (1, 1, 2), "groups": 2},
        {"x": (1, 2, 2, 3, 4), "weight": (2, 1, 2, 1, 2), "bias": (2,)},
        {"x": (-0.75, 1.0), "y": (0.0, 1.5)}, {"x": 1.0, "weight": 0.5, "bias": 0.25},
        [0, 0, 0, 0, 0, 3, 0, 59, 33, 0, 23, 0, 0, 33, 80, 43, 0, 0, 89, 0, 0, 0, 66, 105],
        ([151, 132], [15, 15]), [-11381, 2348],
    ),
    Vector(
        "depthwise_conv2d", "w4a8", "none", {"stride": (1, 1), "padding": (0, 1, 0, 0), "dilation": (1, 2)},
        {"x": (1, 2, 2, 3), "weight": (4, 1, 1, 2), "bias": (4,)},
        {"x": (-1.0, 1.25), "y": (-1.5, 1.0)}, {"x": 1.0, "weight": 0.75, "bias": 0.5},
        [-22, 48, -19, -93, 47, -36, 57, 81, 39, 15, -87, 25, -21, 21, 105, 4],
        ([197, 148, 173, 173], [11, 11, 11, 11]), [-649, 118, -589, 256],
    ),
    Vector(
        "conv_transpose2d", "w8a8", "relu",
        {"stride": (2, 3), "padding": (1, 0, 0, 2), "output_padding": (1, 0), "dilation": (1, 2), "groups": 2},
        {"x": (1, 4, 2, 2), "weight": (1, 4, 2, 2), "bias": (2,)},
        {"x": (-1.0, 0.5), "y": (0.0, 2.0)}, {"x": 1.0, "weight": 1.0, "bias": 0.5},
        [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 41, 8, 0, 12, 0, 8, 64, 16, 0, 8, 76, 46, 8, 8, 8, 8],
        ([194, 194], [15, 15]), [-9451, 2693],
    ),
    Vector(
        "conv_transpose2d", "w8pta8", "none",
        {"stride": (2, 1), "padding": (0, 1, 1, 0), "output_padding": (0, 0), "dilation": (1, 1), "groups": 2},
        {"x": (1, 2, 2, 3), "weight": (2, 2, 2, 2), "bias": (4,)},
        {"x": (-1.0, 0.5), "y": (-2.0, 2.5)}, {"x": 1.0, "weight": 1.25, "bias": 0.5},
        [-8, -57, -46, -28, -17, -52, -4, -38, -43, -37, -32, -3, 0, -28, -9, 23, -34, -11, -94, 8, -24, -9, -94,
        -55, -50, -84, -9, -79, -10, -4, -69, 20, 3, 21, -52, 1],
        ([215, 215, 215, 215], [16, 16, 16, 16]), [-5948, -264, -4868, 815],
    ),
    Vector(
        "fully_connected", "w8a8", "none", {}, {"x": (2, 3), "weight": (2, 3), "bias": (2,)},
        {"x": (-0.125, 0.0625), "y": (-300.0, 280.0)}, {"x": 0.125, "weight": 1.0, "bias": 300.0}, [-128, 20, -128, 20],
        ([171, 149], [26, 26]), [-51813984, 7408418],
    ),
    Vector(
        "fully_connected", "w16a16", "none", {}, {"x": (2, 3), "weight": (3, 3), "bias": (3,)},
        {"x": (-1.0, 1.0), "y": (-1000.0, 1000.0)}, {"x": 1.0, "weight": 1.0, "bias": 900.1},
        [-29661, 3669, -25665, -29728, 3643, -25669],
        ([66, 57, 57], [31, 31, 31]), [-966430752768, 138061545472, -966430818304],
    ),
    Vector(
        "batch_norm", "w8a8s", "none", {"axis": -2}, {"x": (2, 3, 2), "weight": (3,), "bias": (3,)},
        {"x": (-1.0, 1.0), "y": (-1.5, 2.0)}, {"x": 1.0, "weight": 1.5, "bias": 0.75},
        [48, -12, 3, -5, -87, -42, -108, 36, 9, 1, 30, -78],
        ([1536, 192, 1152], [26, 26, 26]), [-2088896, 2088896, -2437046],
    ),
    Vector(
        "sub", "a8s", "none", {}, {"a": (2, 3), "b": (3,)}, {"a": (-1.0, 1.0), "b": (-1.0, 1.0), "y": (-1.75, 1.5)}, {},
        [0, -32, -64, 127, -64, -96], ([1, 1, 1], [0]),
    ),
    Vector(
        "sub", "a8", "relu6", {}, {"a": (2, 3), "b": (3,)},
        {"a": (-8.0, 6.0), "b": (-0.5, 1.0), "y": (0.0, 7.0)}, {"a": 8.0}, [0, 0, 45, 236, 0, 0],
        ([128, 32767, 3511], [21]),
    ),
    Vector(
        "maximum", "a8", "none", {}, {"a": (2, 3), "b": (2, 3)},
        {"a": (-1.0, 0.75), "b": (-0.25, 0.5), "y": (-0.25, 0.75)}, {"b": 0.5}, [-128, -80, 31, 127, -16, -64],
        ([224, 32767, 14043], [22]),
    ),
    Vector(
        "mul", "a8", "relu", {}, {"a": (2, 3), "b": (1, 3)},
        {"a": (-1.0, 1.0), "b": (0.0, 0.5), "y": (0.0, 0.5)}, {"b": 0.5}, [0, 0, 48, 0, 0, 0], ([129], [14]),
    ),
    Vector(
        "relu", "a8", "none", {}, {"x": (6,)}, {"x": (-1.0, 0.75), "y": (0.0, 0.75)}, {}, [0, 0, 84, 254, 0, 0],
        ([149], [6]),
    ),
    Vector(
        "leaky_relu", "a8", "none", {"slope": 1.5}, {"x": (6,)}, {"x": (-1.0, 0.75), "y": (-1.5, 0.75)}, {},
        [-128, -22, 70, 127, -64, 42], ([199], [8]),
    ),
    Vector(
        "leaky_relu", "a16", "none", {"slope": 0.01}, {"x": (6,)}, {"x": (-1.0, 1.0), "y": (-0.01, 1.0)}, {},
        [-328, -123, 8192, 28672, -205, 0], ([1], [0]),
    ),
    Vector(
        "clip", "a8", "none", {"low": -0.25, "high": 0.5}, {"x": (9,)}, {"x": (-1.0, 0.75), "y": (-0.375, 0.75)}, {},
        [-128, -128, 41, 127, -128, -43, 127, -128, -127], ([149], [6]),
    ),
    Vector(
        "concat", "a8", "none", {"axis": 0}, {"a": (3,), "b": (3,), "c": (2,)},
        {"a": (-1.0, 0.75), "b": (-0.5, 0.5), "c": (0.0, 1.0), "y": (-1.0, 1.0)}, {"b": 0.5},
        [-128, -48, 32, -64, -8, 48, 0, 16], ([224, 128, 128], [8, 8, 8]),
    ),
    Vector(
        "concat", "a8s", "none", {"axis": 0}, {"a": (3,), "b": (3,)},
        {"a": (-1.0, 1.0), "b": (-0.96875, 0.9375), "y": (-1.0, 1.0)}, {"b": 0.9375}, [-128, -48, 32, -123, -15, 93],
    ),
    Vector(
        "avg_pool2d", "a8", "none",
        {"kernel": (2, 3), "stride": (2, 2), "padding": (0, 1, 1, 0), "ceil_mode": True, "count_include_pad": False},
        {"x": (1, 1, 4, 4)}, {"x": (-1.0, 0.75), "y": (-1.0, 0.75)}, {}, [-55, 27, 54, 30],
    ),
    Vector(
        "avg_pool2d", "a16", "none",
        {"kernel": (2, 3), "stride": (2, 2), "padding": (0, 1, 1, 0), "ceil_mode": True, "count_include_pad": True},
        {"x": (1, 1, 4, 4)}, {"x": (-1.0, 0.75), "y": (-1.0, 0.75)}, {}, [-10944, 2736, 5472, 4104],
    ),
    Vector(
        "max_pool2d", "a8", "none", {"kernel": (2, 3), "stride": (2, 2), "padding": (0, 1, 1, 0), "ceil_mode": True},
        {"x": (1, 1, 4, 4)}, {"x": (-1.0, 0.75)}, {}, [18, 127, 127, 127],
    ),
    Vector(
        "global_avg_pool2d", "a8", "none", {}, {"x": (1, 2, 3, 2)}, {"x": (-1.0, 0.75), "y": (-1.0, 1.0)}, {}, [-7, 21],
    ),
    Vector(
        "reduce_mean", "a8", "none", {"axes": (0, 2), "keepdims": True}, {"x": (2, 3, 2)},
        {"x": (-1.0, 0.75), "y": (-0.75, 0.5)}, {}, [-58, 82, 6], ([179], [9]),
    ),
    Vector(
        "reduce_sum", "a8", "none", {"axes": (1,), "keepdims": True}, {"x": (2, 5)},
        {"x": (-1.0, 0.75), "y": (-3.0, 1.5)}, {}, [-15, 35], ([199], [9]),
    ),
    Vector(
        "pad", "a8", "none", {"padding": (1, 0, 0, 2), "value": 0.3125}, {"x": (2, 2)}, {"x": (-1.0, 0.75)}, {},
        [64, 64, 64, 64, -128, -37, 64, 64, 54, 127, 64, 64],
    ),
    Vector(
        "matmul", "a8", "none", {}, {"a": (2, 3), "b": (3, 2)},
        {"a": (-1.0, 0.75), "b": (-0.5, 1.0), "y": (-1.5, 1.25)}, {}, [40, 28, -67, 31], ([245], [16]),
    ),
)  # fmt: skip


@pytest.mark.parametrize("vector", VECTORS, ids=lambda v: f"{v.op}-{v.scheme}-{v.activation}")
def test_parameters_and_arithmetic_checks_pass_each_vector(vector: Vector) -> None:
    target = Target(LIBRARY.spec(vector.op), LIBRARY.scheme(vector.scheme), PLATFORM)
    case = Case(
        vector.op,
        vector.scheme,
        "compass",
        vector.shapes,
        vector.attrs,
        vector.ranges,
        "channels_last",
        TilePlan({}),
        DataRecipe("given", 0),
        vector.activation,
    )
    trial = Trial(target, case, BuiltinEngine())
    trial.tensors = vector.tensors
    assert [parameters(trial).status, arithmetic(trial).status] == ["pass", "pass"]


@pytest.mark.parametrize("vector", VECTORS, ids=lambda v: f"{v.op}-{v.scheme}-{v.activation}")
def test_builtin_functions_give_the_codes_of_each_vector(vector: Vector) -> None:
    spec, tensors = LIBRARY.spec(vector.op), vector.tensors
    constants = {name: values for name, values in tensors.items() if spec.inputs[name].role != "activation"}
    scheme, shapes = LIBRARY.scheme(vector.scheme), dict(vector.shapes)
    made = BuiltinEngine().quantize(
        Request(spec, scheme, PLATFORM, shapes, vector.attrs, vector.ranges, constants, activation=vector.activation)
    )
    codes = {name: constant.codes for name, constant in made.constants.items()}
    for name in tensors.keys() - constants.keys():
        codes[name] = quantize(tensors[name], made.inputs[name], PLATFORM.quantizer)
    got = BuiltinEngine().run(Call(spec, vector.attrs, "channels_last", vector.activation), codes, made).codes
    assert got.flatten().tolist() == vector.codes
    if vector.numbers is not None:
        ratio = made.rescale
        assert ratio is not None
        mantissas, shifts = vector.numbers
        if vector.op == "concat":
            found = [factor * 2.0**shift for factor, shift in zip(ratio.factors.values(), shifts, strict=True)]
            assert found == mantissas
        else:
            factors = [] if len(ratio.factors) < 2 else list(ratio.factors.values())
            assert [*ratio.mantissa.reshape(-1).tolist(), *factors] == mantissas[
                : ratio.mantissa.numel() + len(factors)
            ]
            assert ratio.shift.reshape(-1).tolist() == shifts[: ratio.shift.numel()]
    if vector.biases is not None:
        weight, bias = made.constants["weight"].codes, made.constants["bias"].codes
        sums = weight.reshape(len(weight), -1).sum(1).repeat(len(bias) // len(weight))
        assert (bias - made.inputs["x"].zero_point * sums).tolist() == vector.biases
