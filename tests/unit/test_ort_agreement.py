"""Platform `ort` against ONNX Runtime itself: parameters, codes of constants and inputs, output codes, float forward.

Populations: every data set in turn (rows), random, ties; codes over the whole range under scales that are powers of two
(exact ties) or eighths (sums that are ties in the reals and that float32 decides); shapes beyond the specs' domains.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
import torch
from numpy.typing import NDArray
from onnxruntime.quantization import CalibrationDataReader, QuantFormat, QuantType, quantize_static
from onnxruntime.quantization.onnx_quantizer import ONNXQuantizer
from onnxruntime.quantization.quant_utils import compute_scale_zp, get_qmin_qmax_for_qType, quantize_data
from torch import Tensor

from quantizer.conformance.checks.arithmetic import arithmetic
from quantizer.conformance.checks.float_forward import float_forward
from quantizer.conformance.generation.builder import build_case, complete, rows
from quantizer.conformance.generation.choosers import HashChooser
from quantizer.conformance.generation.ranges import range_of
from quantizer.conformance.judge import known_defect
from quantizer.conformance.target import Target
from quantizer.conformance.trial import Trial
from quantizer.core.case import Case
from quantizer.core.dtypes import dtype
from quantizer.core.library import load_library
from quantizer.numerics.parameters import Request
from quantizer.numerics.qparams import Parameters, QParams, Staged
from quantizer.ops import load_built_ins
from quantizer.runtime.engines import Call
from quantizer.runtime.engines.own import OwnEngine

Array = NDArray[Any]
COUNT = 100
"""Cases of each population; an operator has five of them."""
UINT8, INT8 = onnx.TensorProto.UINT8, onnx.TensorProto.INT8
KINDS = {"uint8": UINT8, "int8": INT8, "float32": onnx.TensorProto.FLOAT, "int64": onnx.TensorProto.INT64}
NODES = {
    "conv2d": ("QLinearConv", "Conv"), "add": ("QLinearAdd", "Add"), "softmax": ("QLinearSoftmax", "Softmax"),
    "argmax": ("ArgMax", "ArgMax"), "reshape": ("Reshape", "Reshape"),
}  # fmt: skip
TARGETS = ["conv2d-w8a8", "conv2d-w8pta8", "add-a8", "softmax-a8", "argmax-a8", "reshape-a8"]
POPULATIONS = ["rows", "random", "ties", "powers", "eighths"]

load_built_ins()
LIBRARY = load_library()
ORT = LIBRARY.platform("ort")


# ONNX Runtime: one node, parameters as initializers, one thread that does not spin.


def run_node(op: str, feeds: Mapping[str, Array], constants: Mapping[str, Array], order: list[str], **attrs: object) -> Array:
    helper = onnx.helper
    node = helper.make_node(op, order, ["out"], domain="com.microsoft" if op in ("QLinearAdd", "QLinearSoftmax") else "", **attrs)
    graph = helper.make_graph(
        [node], "g", [helper.make_tensor_value_info(name, KINDS[v.dtype.name], v.shape) for name, v in feeds.items()],
        [onnx.ValueInfoProto(name="out")],
        [onnx.numpy_helper.from_array(np.array(value, order="C"), name) for name, value in constants.items()],
    )  # fmt: skip
    opsets = [helper.make_opsetid("", 13), helper.make_opsetid("com.microsoft", 1)]
    serialized = helper.make_model(graph, opset_imports=opsets, ir_version=8).SerializeToString()
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads, options.log_severity_level = 1, 3
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    session = onnxruntime.InferenceSession(serialized, options, providers=["CPUExecutionProvider"])
    return np.asarray(session.run(None, dict(feeds))[0])


def node_attributes(op: str, attrs: Mapping[str, Any], *, quantized: bool) -> dict[str, object]:
    match op:
        case "conv2d":
            return {"pads": list(attrs["padding"]), "strides": list(attrs["stride"]), "dilations": list(attrs["dilation"]),
                    "group": attrs["groups"]}  # fmt: skip
        case "softmax":
            return {"axis": attrs["axis"], **({"opset": 13} if quantized else {})}
        case "argmax":
            return {"axis": attrs["axis"], "keepdims": int(attrs["keepdims"]), "select_last_index": int(attrs["select_last"])}
        case _:
            return {}


def scale_and_zero(name: str, params: QParams, kind: str) -> dict[str, Array]:
    return {f"{name}_scale": params.scale.numpy().astype(np.float32), f"{name}_zero": params.zero_point.numpy().astype(kind)}


class OnnxRuntime(OwnEngine):
    """ONNX Runtime's kernels on what our quantize rule hands."""

    name = "onnxruntime"

    def run(self, call: Call, codes: Mapping[str, Tensor], parameters: Parameters) -> Staged:
        feeds = {name: codes[name].numpy().astype(np.uint8) for name in call.spec.activations}
        constants: dict[str, Array] = {}
        order: list[str] = []
        for name in call.spec.activations:
            order.append(name)
            if call.spec.op in ("conv2d", "add", "softmax"):
                constants |= scale_and_zero(name, parameters.inputs[name], "uint8")
                order += [f"{name}_scale", f"{name}_zero"]
        if "weight" in codes:
            constants |= {"weight": codes["weight"].numpy().astype(np.int8)}
            constants |= scale_and_zero("weight", parameters.constants["weight"].params, "int8")
            order += ["weight", "weight_scale", "weight_zero"]
        if call.spec.op in ("conv2d", "add", "softmax"):
            constants |= scale_and_zero("y", parameters.outputs["y"], "uint8")
            order += ["y_scale", "y_zero"]
        if "bias" in codes:
            constants["bias"] = codes["bias"].numpy().astype(np.int32)
            order.append("bias")
        found = self._node(call, feeds, constants, order, quantized=True)
        return Staged(torch.from_numpy(found.astype(np.int64)), {})

    def run_float(self, call: Call, operands: Mapping[str, Tensor]) -> Tensor:
        feeds = {name: values.numpy() for name, values in operands.items()}
        return torch.from_numpy(self._node(call, feeds, {}, list(feeds), quantized=False))

    def _node(self, call: Call, feeds: Mapping[str, Array], constants: dict[str, Array], order: list[str], *, quantized: bool) -> Array:
        op = call.spec.op
        if op == "reshape":
            constants, order = {"shape": np.array(call.attrs["shape"], np.int64)}, [*order, "shape"]
        attrs = node_attributes(op, call.attrs, quantized=quantized)
        return run_node(NODES[op][0 if quantized else 1], feeds, constants, order, **attrs)


# Cases.


def target_of(item: str) -> Target:
    op, scheme = item.split("-")
    return Target(LIBRARY.spec(op), LIBRARY.scheme(scheme), ORT)


@functools.cache
def trials(item: str, population: str) -> list[Trial]:
    target = target_of(item)
    known = rows(target.spec, ["only"], "only")
    found = []
    for i in range(COUNT):
        seed = COUNT * POPULATIONS.index(population) + i
        row = known[seed % len(known)]
        if population in ("powers", "eighths"):
            case = build_case(target, HashChooser(seed, {**row, "data": "random"}))
            found.append(on_scales(target, case, population, np.random.default_rng(seed)))
        else:
            chosen = row if population == "rows" else {**row, "data": population}
            found.append(Trial(target, build_case(target, HashChooser(seed, chosen)), OwnEngine()))
    return found


def scales(kind: str, rng: np.random.Generator, count: int | None = None) -> Any:
    return 2.0 ** rng.integers(-6, 2, count) if kind == "powers" else rng.integers(1, 40, count) / 8


def on_scales(target: Target, case: Case, kind: str, rng: np.random.Generator) -> Trial:
    """Return a trial on codes over their whole range, under scales of one kind; ranges that give exactly those scales."""
    ranges, tensors = dict(case.ranges), {}
    step: Any = 0.0
    for name in target.spec.activations:
        step, zero = scales(kind, rng), int(rng.integers(0, 256))
        ranges[name] = range_of(target, step, zero)
        tensors[name] = (rng.integers(0, 256, case.shapes[name]) - zero) * step
    grow = rng.uniform(-1, 2)
    if "weight" in case.shapes:
        shape, part = case.shapes["weight"], target.scheme.weight
        per_channel = part is not None and part.granularity == "channel"
        steps = scales(kind, rng, shape[0]) if per_channel else np.full(shape[0], scales(kind, rng))
        codes = rng.integers(-127, 128, shape)
        codes.reshape(shape[0], -1)[:, 0] = 127
        tensors["weight"] = codes * steps.reshape(-1, 1, 1, 1)
        if "bias" in case.shapes:
            tensors["bias"] = rng.integers(-2000, 2000, shape[0]) * steps * step
        step, grow = step * np.median(steps), rng.integers(4, 9)
    if "y" in ranges:
        ranges["y"] = range_of(target, 2.0 ** round(np.log2(step) + grow) * (1 if kind == "powers" else scales(kind, rng) / 4), int(rng.integers(0, 256)))
    trial = Trial(target, case.but(ranges=ranges), OwnEngine())
    trial.tensors = {name: torch.from_numpy(tensors[name].astype(np.float32)) for name in case.shapes}
    return trial


def real_engine(trial: Trial) -> Trial:
    """Return the same trial on ONNX Runtime, with our parameters and codes."""
    other = Trial(trial.target, trial.case, OnnxRuntime())
    other.tensors, other.parameters, other.codes = trial.tensors, trial.parameters, trial.codes
    return other


def items(test: Any) -> Any:
    return pytest.mark.parametrize("population", POPULATIONS)(pytest.mark.parametrize("item", TARGETS)(test))


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
    for trial in trials(item, population):
        for name, params in trial.parameters.inputs.items():
            assert chosen(params) == expected_activation(*trial.case.ranges[name]), (trial.case.digest, name)
        if trial.spec.op in ("conv2d", "add"):
            assert chosen(trial.output) == expected_activation(*trial.case.ranges["y"]), trial.case.digest
        elif trial.spec.op == "softmax":
            assert chosen(trial.output) == (1 / 256, 0)
        elif trial.spec.op == "reshape":
            assert chosen(trial.output) == chosen(trial.parameters.inputs["x"])


def quantizer_for(bias: Array, *, per_channel: bool) -> ONNXQuantizer:
    """Return ONNX Runtime's quantizer with just the bias in its model, enough for its rules of biases."""
    made: ONNXQuantizer = object.__new__(ONNXQuantizer)
    graph = onnx.helper.make_graph([], "g", [], [], [onnx.numpy_helper.from_array(bias, "bias")])
    made.model = onnxruntime.quantization.onnx_model.ONNXModel(onnx.helper.make_model(graph))
    made.weight_qType, made.per_channel = INT8, per_channel
    return made


def expected_constants(trial: Trial) -> tuple[Array, Array, Array | None, bool]:
    """Return scales and codes of the weight, codes of the bias, and whether the bias made a weight scale grow."""
    weight, part = trial.tensors["weight"].numpy(), trial.target.scheme.weight
    per_channel = part is not None and part.granularity == "channel"
    parts = [quantize_data(w.flatten(), INT8, True) for w in (weight if per_channel else [weight])]
    scale = np.array([found[1] for found in parts], np.float32) if per_channel else np.array(parts[0][1], np.float32)
    codes = np.stack([found[2].reshape(weight.shape[-4 + per_channel :]) for found in parts]).reshape(weight.shape)
    if "bias" not in trial.tensors:
        return scale, codes, None, False
    quantizer = quantizer_for(trial.tensors["bias"].numpy(), per_channel=per_channel)
    x_scale = trial.parameters.inputs["x"].scale.numpy().astype(np.float32)
    grown, _ = quantizer._adjust_weight_scale_for_int32_bias(
        x_scale, scale.copy(), "weight", quantizer.model.initializer()[0], per_channel
    )
    quantizer.quantize_bias_static_impl("bias", x_scale, scale)
    bias = next(t for t in quantizer.model.initializer() if t.name == "bias_quantized")
    return scale, codes, onnx.numpy_helper.to_array(bias), bool(grown)


@pytest.mark.parametrize("population", POPULATIONS)
@pytest.mark.parametrize("item", TARGETS[:2])
def test_codes_of_weights_and_biases_are_those_of_the_quantizer(item: str, population: str) -> None:
    for trial in trials(item, population):
        scale, codes, bias, grown = expected_constants(trial)
        if grown:
            assert population == "rows"
            continue
        constants = trial.parameters.constants
        assert np.array_equal(constants["weight"].params.scale.numpy(), scale), trial.case.digest
        assert np.array_equal(constants["weight"].codes.numpy(), codes), trial.case.digest
        if bias is not None:
            assert np.array_equal(constants["bias"].codes.numpy(), bias), trial.case.digest


@items
def test_inputs_become_the_codes_of_quantize_linear(item: str, population: str) -> None:
    for trial in trials(item, population):
        for name, params in trial.parameters.inputs.items():
            constants = scale_and_zero(name, params, "uint8")
            found = run_node("QuantizeLinear", {name: trial.tensors[name].numpy()}, constants, [name, *constants])
            assert np.array_equal(trial.codes[name].numpy(), found), (trial.case.digest, name)


# What the kernels compute.


def assert_agrees(found: list[Trial]) -> int:
    """Compare the codes of all trials with ONNX Runtime's; return how many elements that were."""
    compared = 0
    for trial in found:
        expected = real_engine(trial).got
        assert trial.got.shape == expected.shape == trial.output_shape
        assert np.array_equal(trial.got, expected), (trial.case.to_json(), np.argwhere(trial.got != expected)[0])
        compared += expected.size
    return compared


@items
def test_output_codes_are_those_of_the_kernel(item: str, population: str) -> None:
    assert len(trials(item, population)) == COUNT
    assert assert_agrees(trials(item, population)) > 10 * COUNT


@items
def test_real_codes_raise_no_alarm(item: str, population: str) -> None:
    """The arithmetic check passes ONNX Runtime's own codes but for the platform's declared defects."""
    for trial in trials(item, population):
        verdict = arithmetic(real_engine(trial))
        assert verdict.status == "pass" or known_defect(trial, "arithmetic"), (trial.case.to_json(), verdict)


@items
def test_float_forward_of_both_is_within_the_derived_bound(item: str, population: str) -> None:
    for trial in trials(item, population):
        for engine in (trial, real_engine(trial)):
            verdict = float_forward(engine)
            assert verdict.status == "pass", (engine.engine.name, trial.case.to_json(), verdict)
