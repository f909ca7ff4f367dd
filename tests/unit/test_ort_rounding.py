"""Platform `ort` where float32 decides: cases made so that another order of operations gives other codes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from ort_cases import (
    assert_agrees,
    both,
    given,
    one_thread,  # noqa: F401 - used by every test
    scales,
    target_of,
    uint8,
)
from ort_oracle import run_node

from quantizer.conformance.checks.accuracy import accuracy
from quantizer.conformance.checks.arithmetic import arithmetic
from quantizer.conformance.checks.parameters import parameters
from quantizer.conformance.generation.builder import complete
from quantizer.conformance.generation.choice_sources import HashChoices
from quantizer.conformance.generation.hashing import integers, uniform
from quantizer.conformance.trials.trial import Trial
from quantizer.core.errors import RefusedError
from quantizer.platforms.onnxruntime.engine import node_attributes, quantized_inputs
from quantizer.runtime.engines.builtin import BuiltinEngine


def test_the_multiplier_of_a_convolution_is_a_float32_product_and_quotient() -> None:
    """Output scales of 128 times the float32 product: ties are ties only where the product is rounded before it is divided."""
    attrs = {"stride": (1, 1), "padding": (0, 0, 0, 0), "dilation": (1, 1), "groups": 1}
    found = []
    for seed in range(60):
        x_scale = np.float32(1 + uniform(seed, "x.scale", ()))
        weight = (integers(seed, "weight", (3, 1, 1, 1), 1, 127) * (1 + uniform(seed, "step", ()))).astype(np.float32)
        product = x_scale * np.float32(2.0 * float(weight.max()) / 254)
        codes, zeros = integers(seed, "x", (1, 1, 16, 16), 0, 255), integers(seed, "zeros", (2,), 0, 255).tolist()
        params = {"x": uint8(float(x_scale), zeros[0])}, uint8(float(product) * 128, zeros[1])
        found.append(given("conv2d-w8pta8", {"x": codes}, *params, weight=weight, **attrs))
    assert assert_agrees(found) == 60 * 3 * 256


SHAPES = [
    ((64, 65), (64, 65)),
    ((1,), (64, 65)),
    ((64, 65), (1,)),
    ((64, 1), (64, 65)),
    ((64, 65), (64, 1)),
    ((65,), (64, 65)),
    ((64, 65), (65,)),
    ((64, 1), (1, 65)),
    ((1, 65), (64, 1)),
    ((1,), (4160, 1)),
    ((4160, 1), (1,)),
    ((4160, 1), (1, 1)),
    ((1, 1), (4160, 1)),
    ((64, 1, 1), (64, 65, 1)),
    ((64, 65, 1), (65, 1)),
]


@pytest.mark.parametrize(("a", "b"), SHAPES)
def test_a_broadcast_operand_is_added_as_a_scalar(a: tuple[int, ...], b: tuple[int, ...]) -> None:
    found = []
    for seed in range(25):
        codes = {name: integers(seed, name, shape, 0, 255) for name, shape in (("a", a), ("b", b))}
        zeros = integers(seed, "zeros", (3,), 0, 255).tolist()
        params = [uint8(s, z) for s, z in zip(scales("eighths", seed, f"{a}{b}", (3,)).tolist(), zeros, strict=True)]
        found.append(given("add-a8", codes, {"a": params[0], "b": params[1]}, params[2]))
    assert assert_agrees(found) == 25 * 4160


ROWS = [
    ("0x1.011a88p-7", [150, 179]),
    ("0x1.bce99p-4", [196, 176, 185, 178, 193, 192, 177]),
    ("0x1.f70c6ap-7", [185, 13, 41, 47, 152, 57, 86, 119]),
    ("0x1.ee9deep-8", [196, 56, 189, 10, 58, 146]),
    ("0x1.73ea1p-7", [194, 174, 179, 94, 118, 2, 120, 26]),
    ("0x1.91d376p-5", [196, 194, 180, 163, 179, 147]),
    ("0x1.90f45ap-7", [181, 157, 59, 122, 22]),
    ("0x1.20a9p-3", [193, 181, 181, 192, 196, 196, 193]),
    ("0x1.584536p-4", [181, 189, 197, 191, 190, 196]),
]
"""Rows of codes that a logarithm in float64 instead of float32 gets wrong by one."""


@pytest.mark.parametrize(("scale", "row"), ROWS)
def test_softmax_computes_its_logarithm_in_float32(scale: str, row: list[int]) -> None:
    codes = np.stack([np.array(row), np.array(row[::-1])])
    assert assert_agrees([given("softmax-a8", {"x": codes}, {"x": uint8(float.fromhex(scale))}, axis=1)]) > 0


def test_softmax_near_ties() -> None:
    """Exponentials that are almost powers of two, so that quotients lie within a few float32 steps of a tie."""
    found = []
    for seed in range(400):
        places, off, size = (
            int(integers(seed, name, (), *ends)) for name, *ends in (("p", 0, 4), ("o", -2, 2), ("n", 2, 16))
        )
        scale = float(np.float32(np.log(2) * 2.0**-places * (1 + off * 2.0**-23)))
        distance = np.minimum(integers(seed, "distance", (20, size), 0, 9) << places, 255)
        found.append(given("softmax-a8", {"x": 255 - distance}, {"x": uint8(scale)}, axis=1))
    assert assert_agrees(found) > 60_000


def decimal(seed: int, name: str) -> float:
    """Return thousandths, as float32: products and quotients of them are ties but for the rounding of each step."""
    return float(np.float32(integers(seed, name, (), 1, 39) / 1000))


def near(seed: int, unit: float) -> float:
    """Return an output scale of a few *unit*: a power of two times it, over 1, 3, 5 or 7."""
    places, divisor = int(integers(seed, "places", (), -2, 2)), 1 + 2 * int(integers(seed, "divisor", (), 0, 3))
    return float(np.float32(unit * 2.0**places / divisor))


def zeros(seed: int, count: int) -> list[int]:
    return integers(seed, "zeros", (count,), 0, 255).tolist()


EVERY = {"x": np.arange(256)}


@pytest.mark.parametrize("step", [2.0**-8, 2.0**-12, 2.0**-20, 2.0**-26])
def test_the_logistic_table_equals_the_kernel(step: float) -> None:
    """Every code, down to output scales where float32 steps of the kernel are codes apart."""
    found = []
    for seed in range(150):
        x_zero, y_zero = zeros(seed, 2)
        x_scale = float(np.float32(2.0 ** (8 * uniform(seed, "x.scale", ()) - 8)))
        params = uint8(x_scale, x_zero), uint8(near(seed, step), y_zero)
        found.append(given("sigmoid-a8", EVERY, {"x": params[0]}, params[1]))
    assert assert_agrees(found) == 150 * 256
    assert all(arithmetic(other).status == "pass" for _, other in found)


def test_small_output_scales_tell_float32_logistic_functions_apart() -> None:
    """Below 0 the kernel's value is a difference from 1/2, off by up to 2**-23: thirty codes of 2**-28."""
    trial, other = given("sigmoid-a8", EVERY, {"x": uint8(0.08, 255)}, uint8(2.0**-28))
    assert np.array_equal(trial.got, other.got)
    real = 1 / (1 + np.exp(-np.float32(0.08) * (np.arange(256, dtype=np.float32) - 255)))
    plain = np.rint(real / np.float32(2.0**-28)).clip(0, 255)
    assert np.abs(trial.got - plain).max() > 8


def test_sigmoid_passes_with_tiny_output_scales() -> None:
    """One very negative element gives an output scale much smaller than the kernel's error: no false alarm."""
    target, smallest = target_of("sigmoid-a8"), 1.0
    for seed in range(60):
        chooser = HashChoices(seed, {})
        case = complete(target, {"shape": (1,)}, ["x"], "random", seed, chooser, {"x": (-16.0, 0.0)})
        trial, other = both(Trial(target, case, BuiltinEngine()))
        assert_agrees([(trial, other)])
        for check in (parameters, accuracy, arithmetic):
            assert check(other).status == "pass", (case.to_json(), check(other))
        smallest = min(smallest, float(trial.output.scale))
    assert smallest < 2.0**-26


def test_the_leaky_rectifier_table_equals_the_kernel() -> None:
    found = []
    for seed in range(300):
        x_scale, (x_zero, y_zero) = decimal(seed, "x"), zeros(seed, 2)
        slope = [0.0, 0.01, 0.1, 0.5, 1.0, 7.3, float(np.float32(uniform(seed, "slope", ())))][seed % 7]
        params = uint8(x_scale, x_zero), uint8(near(seed, x_scale), y_zero)
        found.append(given("leaky_relu-a8", EVERY, {"x": params[0]}, params[1], slope=slope))
    assert assert_agrees(found) == 300 * 256
    assert all(arithmetic(other).status == "pass" for _, other in found)


@pytest.mark.parametrize(("item", "shapes"), [("mul-a8", [(40, 40)] * 2), ("matmul-a8", [(40, 3), (3, 40)])])
def test_products_of_decimal_scales(item: str, shapes: list[tuple[int, ...]]) -> None:
    """A multiplier of two float32 roundings; of a product the zero point is added before the last."""
    found = []
    for seed in range(60):
        a, b, (a_zero, b_zero, y_zero) = decimal(seed, "a"), decimal(seed, "b"), zeros(seed, 3)
        codes = {name: integers(seed, name, shape, 0, 255) for name, shape in zip("ab", shapes, strict=True)}
        y = uint8(near(seed, 2.0**6 * float(np.float32(a) * np.float32(b))), y_zero)
        found.append(given(item, codes, {"a": uint8(a, a_zero), "b": uint8(b, b_zero)}, y))
    assert assert_agrees(found) == 60 * 1600


def test_fully_connected_of_decimal_scales() -> None:
    """The multiplier of a row times filters is a float32 product and quotient, as a convolution's is."""
    found = []
    for seed in range(60):
        x, step, (x_zero, y_zero) = decimal(seed, "x"), decimal(seed, "step"), zeros(seed, 2)
        weight = integers(seed, "weight", (40, 3), -127, 127)
        weight[:, 0] = 127
        y = uint8(near(seed, 2.0**6 * float(np.float32(x) * np.float32(step))), y_zero)
        codes, params = {"x": integers(seed, "x", (40, 3), 0, 255)}, {"x": uint8(x, x_zero)}
        found.append(given("fully_connected-w8a8", codes, params, y, weight=(weight * step).astype(np.float32)))
    assert assert_agrees(found) == 60 * 1600


def test_concatenation_divides_dequantized_values() -> None:
    found = []
    for seed in range(60):
        y_scale, zero = decimal(seed, "y"), zeros(seed, 5)
        codes = {name: integers(seed, name, (1, 256), 0, 255) for name in "abcd"}
        params = {name: uint8(near(seed + 60 * i, y_scale), zero[i]) for i, name in enumerate("abcd")}
        found.append(given("concat-a8", codes, params, uint8(y_scale, zero[4]), axis=0))
    assert assert_agrees(found) == 60 * 1024


WINDOWS = [
    {"kernel": (3, 3), "stride": (1, 1), "padding": (1, 1, 1, 1), "ceil_mode": False, "count_include_pad": False},
    {"kernel": (2, 5), "stride": (2, 1), "padding": (0, 2, 1, 2), "ceil_mode": True, "count_include_pad": True},
    {"kernel": (14, 15), "stride": (1, 1), "padding": (0, 0, 0, 0), "ceil_mode": False, "count_include_pad": True},
]
"""Windows whose sums are rounded place by place; the last is the whole image, whose sum is exact."""


@pytest.mark.parametrize("attrs", [*WINDOWS, {}])
def test_averages_of_decimal_scales(attrs: dict[str, Any]) -> None:
    found = []
    for seed in range(60):
        x_scale, (x_zero, y_zero) = decimal(seed, "x"), zeros(seed, 2)
        spread = int(integers(seed, "spread", (), 1, 127))
        codes = {"x": integers(seed, "x", (2, 8, 14, 15), 128 - spread, 127 + spread)}
        params = uint8(x_scale, x_zero), uint8(near(seed, x_scale), y_zero)
        item = "avg_pool2d-a8" if attrs else "global_avg_pool2d-a8"
        found.append(given(item, codes, {"x": params[0]}, params[1], **attrs))
    assert assert_agrees(found) >= 60 * 16
    assert all(arithmetic(other).status == "pass" for _, other in found)


def test_the_global_average_divides_by_the_product_of_scale_and_count() -> None:
    """Sums times almost 1/2: ties where the output scale times the count is rounded before the division, and only there."""
    found = []
    for seed in range(120):
        count, x_scale = int(integers(seed, "count", (), 3, 14)), np.float32(1 + uniform(seed, "x.scale", ()))
        x_zero, y_zero = zeros(seed, 2)
        codes = {"x": integers(seed, "x", (2, 32, 1, count), 0, 255)}
        params = uint8(float(x_scale), x_zero), uint8(float(np.float32(2 * x_scale / count)), y_zero)
        found.append(given("global_avg_pool2d-a8", codes, {"x": params[0]}, params[1]))
    assert assert_agrees(found) == 120 * 64


@pytest.mark.parametrize(
    ("multiplier", "throws"), [(2.0**8, True), (2.0**8 - 2.0**-16, False), (2.0**-32, False), (2.0**-33, True)]
)
def test_the_global_average_refuses_multipliers_out_of_range(multiplier: float, throws: bool) -> None:
    """The kernel throws at 2**8 and above and below 2**-32; our integer forward computes what its formula gives."""
    codes = {"x": np.full((1, 1, 1, 2), 3)}
    trial, other = given("global_avg_pool2d-a8", codes, {"x": uint8(2 * multiplier)}, uint8(1.0))
    if throws:
        assert trial.got.tolist() == [[[[min(255, round(6 * multiplier))]]]]
        assert other.refusal == "QLinearGlobalAveragePool takes multipliers from 2**-32 to 256"
        constants, order = quantized_inputs(other.call, other.codes, other.parameters)
        with pytest.raises(Exception, match="out of computation range"):
            run_node("QLinearGlobalAveragePool", {"x": codes["x"].astype(np.uint8)}, constants, order)
    else:
        assert assert_agrees([(trial, other)]) == 1


def test_the_float_average_leaves_out_places_beyond_the_padding() -> None:
    """The quantized kernel divides by the whole window, as Compass and our reference do; the float one (and torch) do not."""
    attrs = {"kernel": (1, 3), "stride": (1, 3), "padding": (0, 0, 0, 0), "ceil_mode": True, "count_include_pad": True}
    codes = {"x": np.array([[[[1, 2, 3, 4, 5]]]])}
    trial, other = given("avg_pool2d-a8", codes, {"x": uint8(1.0)}, uint8(1.0), **attrs)
    assert trial.got.tolist() == other.got.tolist() == [[[[2, 3]]]]
    floats = {"x": torch.tensor(codes["x"], dtype=torch.float32)}
    with pytest.raises(RefusedError, match="beyond the padding"):
        other.engine.run_float(other.call, floats)
    node = node_attributes("avg_pool2d", attrs, 1, quantized=False)
    assert run_node("AveragePool", {"x": floats["x"].numpy()}, {}, ["x"], **node).tolist() == [[[[2.0, 4.5]]]]


def test_softmax_of_one_element_is_the_largest_code() -> None:
    """Up to 1.31 the runtime gave 0, which is declared for those versions."""
    trial, other = given("softmax-a8", {"x": np.array([[3], [250]])}, {"x": uint8(0.25)}, axis=-1)
    assert trial.got.tolist() == other.got.tolist() == [[255], [255]]
    assert not arithmetic(trial).failing
