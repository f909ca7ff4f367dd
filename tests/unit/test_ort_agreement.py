"""Platform `ort` against ONNX Runtime itself: parameters, codes of constants and inputs, output codes, float forward.

Populations: every data set in turn (rows), random, ties; codes over the whole range under scales that are powers of two
(exact ties) or eighths (sums that are ties in the reals and that float32 decides); shapes beyond the specs' domains.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
import torch
from onnxruntime.quantization import CalibrationDataReader, QuantFormat, QuantType, quantize_static
from onnxruntime.quantization.onnx_model import ONNXModel
from onnxruntime.quantization.onnx_quantizer import ONNXQuantizer
from onnxruntime.quantization.quant_utils import (
    compute_scale_zp,
    get_qmin_qmax_for_qType,
    quantize_data,
    quantize_nparray,
)
from ort_oracle import (
    COUNT,
    NODES,
    POPULATIONS,
    SCALED,
    TARGETS,
    Array,
    Pair,
    both,
    given,
    is_per_channel,
    node_attributes,
    one_node,
    pairs,
    quantized_inputs,
    run_node,
    scale_and_zero,
    scales,
    target_of,
    uint8,
)  # fmt: skip

from quantizer.conformance.checks.arithmetic import arithmetic
from quantizer.conformance.checks.float_forward import float_forward
from quantizer.conformance.generation.builder import build_case, complete
from quantizer.conformance.generation.choosers import HashChooser
from quantizer.conformance.generation.hashing import integers, uniform
from quantizer.conformance.judge import known_defect
from quantizer.conformance.trial import Trial
from quantizer.numerics.qparams import QParams
from quantizer.runtime.engines.own import OwnEngine

UINT8, INT8 = onnx.TensorProto.UINT8, onnx.TensorProto.INT8


@pytest.fixture(autouse=True, scope="module")
def one_thread() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def items(test: Any) -> Any:
    return pytest.mark.parametrize("population", POPULATIONS)(pytest.mark.parametrize("item", TARGETS)(test))


def weighted(test: Any) -> Any:
    return pytest.mark.parametrize("population", POPULATIONS)(pytest.mark.parametrize("item", TARGETS[:2])(test))


# What the quantizer chooses.


def expected_activation(low: float, high: float) -> tuple[float, int]:
    ends = np.array(low, np.float32), np.array(high, np.float32)
    assert (float(ends[0]), float(ends[1])) == (low, high), "a calibrated range is made of float32 numbers"
    zero, scale = compute_scale_zp(*ends, *get_qmin_qmax_for_qType(UINT8))
    return float(scale), int(zero)


def chosen(params: QParams) -> tuple[float, int]:
    return float(params.scale), int(params.zero_point)


@items
def test_activation_parameters_are_those_of_compute_scale_zp(item: str, population: str) -> None:
    for trial, _ in pairs(item, population):
        inputs = trial.parameters.inputs
        for name, params in inputs.items():
            assert chosen(params) == expected_activation(*trial.case.ranges[name]), (trial.case.digest, name)
        if trial.spec.op in ("conv2d", "add"):
            assert chosen(trial.output) == expected_activation(*trial.case.ranges["y"]), trial.case.digest
        elif trial.spec.op != "argmax":
            assert chosen(trial.output) == ((1 / 256, 0) if trial.spec.op == "softmax" else chosen(inputs["x"]))


def expected_constants(trial: Trial) -> tuple[bool, dict[str, Array]]:
    """Return whether the bias made a weight scale grow, and the weight's scale and codes and the bias's codes."""
    weight, per_channel = trial.tensors["weight"].numpy(), is_per_channel(trial.target)
    slices = [*weight] if per_channel else [weight]
    scale = np.array([quantize_data(values.flatten(), INT8, symmetric=True)[1] for values in slices], np.float32)
    scale = scale if per_channel else scale.reshape(())
    grown, bias = False, {}
    if "bias" in trial.tensors:
        float_bias = onnx.numpy_helper.from_array(trial.tensors["bias"].numpy(), "bias")
        quantizer: ONNXQuantizer = object.__new__(ONNXQuantizer)
        quantizer.model = ONNXModel(onnx.helper.make_model(onnx.helper.make_graph([], "g", [], [], [float_bias])))
        quantizer.weight_qType = INT8
        x_scale = trial.parameters.inputs["x"].scale.numpy().astype(np.float32)
        grown, scale = quantizer._adjust_weight_scale_for_int32_bias(x_scale, scale, "weight", float_bias, per_channel)
        quantizer.quantize_bias_static_impl("bias", x_scale, scale)
        made = next(tensor for tensor in quantizer.model.initializer() if tensor.name == "bias_quantized")
        bias = {"bias": onnx.numpy_helper.to_array(made)}
    codes = [quantize_nparray(INT8, w, s, np.int8(0)) for w, s in zip(slices, scale.reshape(-1), strict=True)]
    return bool(grown), {"scale": scale, "weight": np.stack(codes).reshape(weight.shape), **bias}


def assert_constants(trial: Trial, expected: Mapping[str, Array]) -> None:
    constants = trial.parameters.constants
    found = {"scale": constants["weight"].params.scale.numpy(), **{n: c.codes.numpy() for n, c in constants.items()}}
    assert found.keys() == expected.keys()
    for name, values in expected.items():
        assert np.array_equal(found[name], values), (trial.case.to_json(), name)


@weighted
def test_codes_of_weights_and_biases_are_those_of_the_quantizer(item: str, population: str) -> None:
    for trial, _ in pairs(item, population):
        assert_constants(trial, expected_constants(trial)[1])


@pytest.mark.parametrize("item", TARGETS[:2])
def test_a_weight_scale_grows_until_the_bias_fits(item: str) -> None:
    for seed in range(COUNT):
        case = build_case(target_of(item), HashChooser(seed, {"data": "scale_spread", "with_bias": "yes"}))
        trial = Trial(target_of(item), case, OwnEngine())
        assert_constants(trial, expected_constants(trial)[1])


class OneSample(CalibrationDataReader):
    """Calibration on one set of tensors."""

    def __init__(self, feeds: dict[str, Array]) -> None:
        self._samples = iter([feeds])

    def get_next(self) -> dict[str, Array] | None:
        return next(self._samples, None)


@pytest.mark.parametrize("item", [item for item in TARGETS if item.startswith(SCALED)])
def test_the_static_quantizer_writes_these_parameters(item: str, tmp_path: Path) -> None:
    """A float model of one operator, calibrated by extrema on the case's own data and quantized as a whole."""
    op = target_of(item).spec.op
    for trial, other in pairs(item, "random")[:4]:
        tensors = {name: values.numpy() for name, values in trial.tensors.items()}
        feeds = {name: tensors[name] for name in trial.spec.activations}
        constants = {name: values for name, values in tensors.items() if name not in feeds}
        attrs = node_attributes(op, trial.case.attrs, quantized=False)
        model = one_node(NODES[op][1], feeds, constants, list(tensors), **attrs)
        quantize_static(
            model, tmp_path / "q.onnx", OneSample(feeds), QuantFormat.QOperator,
            per_channel=is_per_channel(trial.target), activation_type=QuantType.QUInt8, weight_type=QuantType.QInt8,
        )  # fmt: skip
        graph = onnx.load(tmp_path / "q.onnx").graph
        node = next(node for node in graph.node if node.op_type == NODES[op][0])
        values = {tensor.name: onnx.numpy_helper.to_array(tensor) for tensor in graph.initializer}
        written = [values[name].ravel().tolist() for name in node.input if name in values]
        y = other.engine.run_float(trial.call, trial.tensors).numpy()
        ranges = {name: (float(v.min()), float(v.max())) for name, v in {**tensors, "y": y}.items()}
        again = Trial(trial.target, trial.case.but(ranges=ranges), OwnEngine())
        again.tensors = trial.tensors
        handed, _ = quantized_inputs(again.call, again.codes, again.parameters)
        assert [v.ravel().tolist() for v in handed.values()] == written, trial.case.to_json()


@items
def test_inputs_become_the_codes_of_quantize_linear(item: str, population: str) -> None:
    for trial, _ in pairs(item, population):
        for name, params in trial.parameters.inputs.items():
            constants = scale_and_zero(name, params)
            found = run_node("QuantizeLinear", {name: trial.tensors[name].numpy()}, constants, [name, *constants])
            assert np.array_equal(trial.codes[name].numpy(), found), (trial.case.to_json(), name)


# What the kernels compute.


def assert_agrees(found: list[Pair]) -> int:
    """Compare the codes of all trials with ONNX Runtime's; return how many elements that were."""
    for trial, other in found:
        assert trial.got.shape == other.got.shape == trial.output_shape
        assert np.array_equal(trial.got, other.got), (trial.case.to_json(), np.argwhere(trial.got != other.got)[0])
    return sum(trial.got.size for trial, _ in found)


def assert_float_within_bound(found: list[Pair]) -> None:
    for trial in (one for pair in found for one in pair):
        verdict = float_forward(trial)
        assert verdict.status == "pass", (trial.engine.name, trial.case.to_json(), verdict)


@items
def test_output_codes_are_those_of_the_kernel(item: str, population: str) -> None:
    assert len(pairs(item, population)) == COUNT
    assert assert_agrees(pairs(item, population)) > 10 * COUNT


@items
def test_real_codes_raise_no_alarm(item: str, population: str) -> None:
    """The arithmetic check passes ONNX Runtime's own codes but for the platform's declared defects."""
    for trial, other in pairs(item, population):
        verdict = arithmetic(other)
        assert verdict.status == "pass" or known_defect(trial, "arithmetic"), (trial.case.to_json(), verdict)


@items
def test_float_forward_of_both_is_within_the_derived_bound(item: str, population: str) -> None:
    assert_float_within_bound(pairs(item, population))


def convolution(sizes: tuple[int, ...], kernel: tuple[int, int], **attrs: Any) -> tuple[str, dict[str, Any]]:
    names = ("n", "c_in", "h", "w", "c_out", "kh", "kw")
    plain = {"stride": (1, 1), "padding": (0, 0, 0, 0), "dilation": (1, 1), "groups": 1}
    return "conv2d", {**dict(zip(names, (*sizes, *kernel), strict=True)), **plain, **attrs}


BEYOND = [
    convolution((1, 64, 56, 56, 64), (3, 3), padding=(1, 1, 1, 1)),
    convolution((2, 32, 29, 28, 32), (3, 3), padding=(0, 1, 1, 0), stride=(2, 2), groups=32),
    convolution((1, 3, 40, 41, 16), (7, 7), padding=(3, 3, 2, 1), stride=(2, 3)),
    convolution((5, 256, 7, 7, 24), (1, 1)),
    convolution((1, 8, 11, 9, 12), (5, 2), padding=(8, 0, 7, 5), dilation=(4, 3), groups=4),
    ("add", {"shape": (2, 3, 4, 5, 6), "other": (3, 1, 5, 1)}),
    ("add", {"shape": (2, 1, 3, 1, 1), "other": (7, 1, 5, 129)}),
    ("add", {"shape": (4099,), "other": (3, 1)}),
    ("softmax", {"shape": (2, 3, 4, 5, 6), "axis": 2}),
    ("softmax", {"shape": (2, 3, 4, 5, 6), "axis": -5}),
    ("softmax", {"shape": (5, 1000), "axis": -1}),
    ("softmax", {"shape": (2048, 3), "axis": 0}),
    ("softmax", {"shape": (3, 512), "axis": 1}),
    ("softmax", {"shape": (3, 1, 2), "axis": 1}),
    ("argmax", {"shape": (2, 3, 4, 5, 6), "axis": -2, "keepdims": False, "select_last": True}),
    ("argmax", {"shape": (3, 1000), "axis": 1, "keepdims": True, "select_last": False}),
    ("reshape", {"from_shape": (2, 3, 4, 5, 6), "shape": (8, 1, 90)}),
]


@pytest.mark.parametrize("data", ["random", "ties", "corners"])
@pytest.mark.parametrize("structure", range(len(BEYOND)))
def test_shapes_beyond_the_domains(structure: int, data: str) -> None:
    op, bound = BEYOND[structure]
    for target in (target_of(item) for item in TARGETS if item.startswith(op)):
        case = complete(target, bound, list(target.spec.inputs), data, structure, HashChooser(structure, {}))
        found = [both(Trial(target, case, OwnEngine()))]
        assert assert_agrees(found) > 0
        assert_float_within_bound(found)


# Where float32 decides: the multiplier of a convolution, the order of additions, the room above the exponentials.


def test_the_multiplier_of_a_convolution_is_a_float32_product_and_quotient() -> None:
    """Output scales of 128 times the float32 product: ties are ties only where the product is rounded before it is divided."""
    _, attrs = convolution((1, 1, 1, 1, 1), (1, 1))
    attrs = {name: attrs[name] for name in ("stride", "padding", "dilation", "groups")}
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
    ((64, 65), (64, 65)), ((1,), (64, 65)), ((64, 65), (1,)), ((64, 1), (64, 65)), ((64, 65), (64, 1)), ((65,), (64, 65)),
    ((64, 65), (65,)), ((64, 1), (1, 65)), ((1, 65), (64, 1)), ((1,), (4160, 1)), ((4160, 1), (1,)), ((4160, 1), (1, 1)),
    ((1, 1), (4160, 1)), ((64, 1, 1), (64, 65, 1)), ((64, 65, 1), (65, 1)),
]  # fmt: skip


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
    ("0x1.011a88p-7", [150, 179]), ("0x1.bce99p-4", [196, 176, 185, 178, 193, 192, 177]),
    ("0x1.f70c6ap-7", [185, 13, 41, 47, 152, 57, 86, 119]), ("0x1.ee9deep-8", [196, 56, 189, 10, 58, 146]),
    ("0x1.73ea1p-7", [194, 174, 179, 94, 118, 2, 120, 26]), ("0x1.91d376p-5", [196, 194, 180, 163, 179, 147]),
    ("0x1.90f45ap-7", [181, 157, 59, 122, 22]), ("0x1.20a9p-3", [193, 181, 181, 192, 196, 196, 193]),
    ("0x1.584536p-4", [181, 189, 197, 191, 190, 196]),
]  # fmt: skip
"""Rows of codes that a logarithm in float64 instead of float32 gets wrong by one."""


@pytest.mark.parametrize(("scale", "row"), ROWS)
def test_softmax_takes_its_logarithm_in_float32(scale: str, row: list[int]) -> None:
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


def test_softmax_of_one_element_is_the_declared_defect() -> None:
    trial, other = given("softmax-a8", {"x": np.array([[3], [250]])}, {"x": uint8(0.25)}, axis=-1)
    assert trial.got.tolist() == other.got.tolist() == [[0], [0]]
    assert arithmetic(trial).failing
    assert known_defect(trial, "arithmetic")
