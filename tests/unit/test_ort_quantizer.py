"""What platform `ort` provides, against ONNX Runtime's quantizer: parameters, codes of constants and of inputs."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnxruntime.quantization import CalibrationDataReader, QuantFormat, QuantType, quantize_static
from onnxruntime.quantization.onnx_model import ONNXModel
from onnxruntime.quantization.onnx_quantizer import ONNXQuantizer
from onnxruntime.quantization.quant_utils import (
    compute_scale_zp,
    get_qmin_qmax_for_qType,
    quantize_data,
    quantize_nparray,
)
from ort_cases import (
    COUNT,
    TARGETS,
    WEIGHTED,
    is_per_channel,
    items,
    one_thread,  # noqa: F401 - used by every test
    pairs,
    target_of,
    weighted,
)
from ort_oracle import Array, one_node, run_node

from quantizer.conformance.generation.builder import build_case
from quantizer.conformance.generation.choice_sources import HashChoices
from quantizer.conformance.trials.trial import Trial
from quantizer.numerics.qparams import QParams
from quantizer.platforms.onnxruntime.engine import (
    MOVES,
    NODES,
    attribute_inputs,
    node_attributes,
    quantized_inputs,
    scale_and_zero,
)
from quantizer.runtime.engines.builtin import BuiltinEngine

UINT8, INT8 = onnx.TensorProto.UINT8, onnx.TensorProto.INT8
FIXED = {"softmax": (1 / 256, 0)}
"""Operator -> the scale and zero point that its output always has."""
WRITTEN = [op for op in NODES if op == "pad" or op not in (*MOVES, "quantize", "where")]
"""Operators whose quantized node has parameters, or a constant in codes, and that the quantizer takes as floats: not what it
puts in itself, and not a choice, for which it writes an invalid graph."""
BEHIND = ("global_avg_pool2d", "pad")
"""Operators that the quantizer leaves in float unless their input is quantized already."""


def expected_activation(low: float, high: float) -> tuple[float, int]:
    ends = np.array(low, np.float32), np.array(high, np.float32)
    assert (float(ends[0]), float(ends[1])) == (low, high), "a calibrated range is made of float32 numbers"
    zero, scale = compute_scale_zp(*ends, *get_qmin_qmax_for_qType(UINT8))
    return float(scale), int(zero)


def real(trial: Trial) -> dict[str, QParams]:
    """Return the parameters of the inputs that are quantized; indices are numbers of their own."""
    inputs = trial.spec.inputs
    return {name: params for name, params in trial.parameters.inputs.items() if inputs[name].kind == "value"}


def chosen(params: QParams) -> tuple[float, int]:
    return float(params.scale), int(params.zero_point)


@items
def test_activation_parameters_equal_compute_scale_zp(item: str, population: str) -> None:
    for trial, _ in pairs(item, population):
        op, inputs = trial.spec.op, trial.parameters.inputs
        for name, params in real(trial).items():
            assert chosen(params) == expected_activation(*trial.case.ranges[name]), (trial.case.digest, name)
        if op not in (*MOVES, *FIXED):
            assert chosen(trial.output) == expected_activation(*trial.case.ranges["y"]), trial.case.digest
        elif op != "argmax":
            assert chosen(trial.output) == FIXED.get(op, chosen(inputs["x"]))


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
def test_weight_and_bias_codes_equal_the_quantizer(item: str, population: str) -> None:
    for trial, _ in pairs(item, population):
        assert_constants(trial, expected_constants(trial)[1])


@pytest.mark.parametrize("item", WEIGHTED)
def test_a_weight_scale_grows_until_the_bias_fits(item: str) -> None:
    for seed in range(COUNT):
        case = build_case(target_of(item), HashChoices(seed, {"data": "scale_spread", "with_bias": "yes"}))
        trial = Trial(target_of(item), case, BuiltinEngine())
        assert_constants(trial, expected_constants(trial)[1])


class OneSample(CalibrationDataReader):
    """Calibration on one set of tensors."""

    def __init__(self, feeds: dict[str, Array]) -> None:
        self._samples = iter([feeds])

    def get_next(self) -> dict[str, Array] | None:
        return next(self._samples, None)


def float_model(trial: Trial) -> onnx.ModelProto:
    """Return the float model of one operator; after an identity where the quantizer takes quantized inputs only."""
    op = trial.spec.op
    tensors = {name: values.numpy() for name, values in trial.tensors.items()}
    feeds = {name: values for name, values in tensors.items() if name in trial.spec.activations}
    constants = {name: values for name, values in tensors.items() if name not in feeds}
    constants |= attribute_inputs(op, trial.case.attrs)
    groups = trial.case.shapes["x"][1] if op == "depthwise_conv2d" else 1
    attrs = node_attributes(op, trial.case.attrs, groups, quantized=False)
    model = one_node(NODES[op][1], feeds, constants, [*feeds, *constants], **attrs)
    if op in BEHIND:
        model.graph.node[0].input[0] = "same"
        model.graph.node.insert(0, onnx.helper.make_node("LeakyRelu", ["x"], ["same"], alpha=1.0))
    return model


@pytest.mark.parametrize("item", [item for item in TARGETS if item.split("-")[0] in WRITTEN])
def test_the_static_quantizer_writes_these_parameters(item: str, tmp_path: Path) -> None:
    """A float model of one operator, calibrated by extrema on the case's own data and quantized as a whole."""
    for trial, other in [pair for pair in pairs(item, "random") if not pair[0].case.attrs.get("ceil_mode")][:4]:
        tensors = {name: values.numpy() for name, values in trial.tensors.items()}
        feeds = {name: values for name, values in tensors.items() if name in trial.spec.activations}
        quantize_static(
            float_model(trial),
            tmp_path / "q.onnx",
            OneSample(feeds),
            QuantFormat.QOperator,
            per_channel=is_per_channel(trial.target),
            activation_type=QuantType.QUInt8,
            weight_type=QuantType.QInt8,
        )
        graph = onnx.load(tmp_path / "q.onnx").graph
        node = next(node for node in graph.node if node.op_type == NODES[trial.spec.op][0])
        values = {tensor.name: onnx.numpy_helper.to_array(tensor) for tensor in graph.initializer}
        written = [values[name].ravel().tolist() for name in node.input if name in values]
        y = other.engine.run_float(trial.call, trial.tensors).numpy()
        ranges = {name: (float(v.min()), float(v.max())) for name, v in {**tensors, "y": y}.items()}
        again = Trial(trial.target, trial.case.but(ranges=ranges), BuiltinEngine())
        again.tensors = trial.tensors
        provided, order = quantized_inputs(again.call, again.codes, again.parameters)
        assert [provided[name].ravel().tolist() for name in order if name in provided] == written, trial.case.to_json()


@items
def test_inputs_become_the_codes_of_quantize_linear(item: str, population: str) -> None:
    for trial, _ in pairs(item, population):
        for name, params in real(trial).items():
            constants = scale_and_zero(name, params)
            found = run_node("QuantizeLinear", {name: trial.tensors[name].numpy()}, constants, [name, *constants])
            assert np.array_equal(trial.codes[name].numpy(), found), (trial.case.to_json(), name)
