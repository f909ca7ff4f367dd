"""ONNX Runtime as an engine of single operators, and cases for it; imported by test_ort_agreement.py."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import Any

import numpy as np
import onnx
import onnxruntime
import torch
from numpy.typing import NDArray
from torch import Tensor

from quantizer.conformance.generation.builder import build_case, rows
from quantizer.conformance.generation.choosers import HashChooser
from quantizer.conformance.generation.hashing import integers, uniform
from quantizer.conformance.generation.ranges import range_of
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
Pair = tuple[Trial, Trial]
"""One case on our engine, and on ONNX Runtime with our parameters and codes."""
COUNT = 100
"""Cases of each population; an operator has five of them."""
POPULATIONS = ["rows", "random", "ties", "powers", "eighths"]
TARGETS = ["conv2d-w8a8", "conv2d-w8pta8", "add-a8", "softmax-a8", "argmax-a8", "reshape-a8"]
SCALED = ("conv2d", "add", "softmax")
"""Operators whose quantized node takes scales and zero points."""
NODES = {
    "conv2d": ("QLinearConv", "Conv"),
    "add": ("QLinearAdd", "Add"),
    "softmax": ("QLinearSoftmax", "Softmax"),
    "argmax": ("ArgMax", "ArgMax"),
    "reshape": ("Reshape", "Reshape"),
}
MICROSOFT = "com.microsoft"

load_built_ins()
LIBRARY = load_library()
ORT = LIBRARY.platform("ort")


def one_node(
    op: str, feeds: Mapping[str, Array], constants: Mapping[str, Array], order: list[str], **attrs: object
) -> onnx.ModelProto:
    """Return the model of one node; *order* names its inputs, *constants* are initializers."""
    helper = onnx.helper
    domain = MICROSOFT if op in ("QLinearAdd", "QLinearSoftmax") else ""
    inputs = [
        helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(values.dtype), values.shape)
        for name, values in feeds.items()
    ]
    graph = helper.make_graph(
        [helper.make_node(op, order, ["out"], domain=domain, **attrs)],
        "g",
        inputs,
        [onnx.ValueInfoProto(name="out")],
        [onnx.numpy_helper.from_array(np.array(values, order="C"), name) for name, values in constants.items()],
    )
    opsets = [helper.make_opsetid("", 13), helper.make_opsetid(MICROSOFT, 1)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=8)


def run_node(
    op: str, feeds: Mapping[str, Array], constants: Mapping[str, Array], order: list[str], **attrs: object
) -> Array:
    """Return what one node computes, on one thread that does not spin."""
    serialized = one_node(op, feeds, constants, order, **attrs).SerializeToString()
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads, options.log_severity_level = 1, 3
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    session = onnxruntime.InferenceSession(serialized, options, providers=["CPUExecutionProvider"])
    return np.asarray(session.run(None, dict(feeds))[0])


def node_attributes(op: str, attrs: Mapping[str, Any], *, quantized: bool) -> dict[str, object]:
    """Return the attributes of the node that is *op* with *attrs*."""
    match op:
        case "conv2d":
            names = {"pads": "padding", "strides": "stride", "dilations": "dilation"}
            return {"group": attrs["groups"], **{onnx_name: list(attrs[name]) for onnx_name, name in names.items()}}
        case "softmax":
            return {"axis": attrs["axis"], **({"opset": 13} if quantized else {})}
        case "argmax":
            flags = {"keepdims": int(attrs["keepdims"]), "select_last_index": int(attrs["select_last"])}
            return {"axis": attrs["axis"], **flags}
        case _:
            return {}


def scale_and_zero(name: str, params: QParams, kind: str = "uint8") -> dict[str, Array]:
    """Return the two initializers of a quantized tensor."""
    scale, zero = params.scale.numpy().astype(np.float32), params.zero_point.numpy().astype(kind)
    return {f"{name}_scale": scale, f"{name}_zero": zero}


class OnnxRuntime(OwnEngine):
    """ONNX Runtime's kernels on what our quantize rule hands."""

    name = "onnxruntime"

    def run(self, call: Call, codes: Mapping[str, Tensor], parameters: Parameters) -> Staged:
        """Return the codes of the quantized node."""
        feeds = {name: codes[name].numpy().astype(np.uint8) for name in call.spec.activations}
        constants, order = quantized_inputs(call, codes, parameters)
        found = _run(call, feeds, constants, order, quantized=True)
        return Staged(torch.from_numpy(found.astype(np.int64)), {})

    def run_float(self, call: Call, operands: Mapping[str, Tensor]) -> Tensor:
        """Return the result of the float node."""
        feeds = {name: values.numpy() for name, values in operands.items()}
        return torch.from_numpy(_run(call, feeds, {}, list(feeds), quantized=False))


def quantized_inputs(
    call: Call, codes: Mapping[str, Tensor], parameters: Parameters
) -> tuple[dict[str, Array], list[str]]:
    """Return the initializers of the quantized node in its order, and the names of all its inputs."""
    if call.spec.op not in SCALED:
        return {}, ["x"]
    made: dict[str, Array] = {}
    order: list[str] = []
    for name in call.spec.activations:
        made |= scale_and_zero(name, parameters.inputs[name])
        order += [name, f"{name}_scale", f"{name}_zero"]
    if "weight" in codes:
        made["weight"] = codes["weight"].numpy().astype(np.int8)
        made |= scale_and_zero("weight", parameters.constants["weight"].params, "int8")
    made |= scale_and_zero("y", parameters.outputs["y"])
    if "bias" in codes:
        made["bias"] = codes["bias"].numpy().astype(np.int32)
    return made, [*order, *(name for name in made if name not in order)]


def _run(
    call: Call, feeds: Mapping[str, Array], constants: dict[str, Array], order: list[str], *, quantized: bool
) -> Array:
    op = call.spec.op
    if op == "reshape":
        constants, order = {"shape": np.array(call.attrs["shape"], np.int64)}, [*order, "shape"]
    attrs = node_attributes(op, call.attrs, quantized=quantized)
    return run_node(NODES[op][0 if quantized else 1], feeds, constants, order, **attrs)


def target_of(item: str) -> Target:
    """Return the target called op-scheme on platform ort."""
    op, scheme = item.split("-")
    return Target(LIBRARY.spec(op), LIBRARY.scheme(scheme), ORT)


def is_per_channel(target: Target) -> bool:
    """Return whether weights have one scale for each channel."""
    return target.scheme.weight is not None and target.scheme.weight.granularity == "channel"


def both(trial: Trial) -> Pair:
    """Return *trial* and the same on ONNX Runtime."""
    other = Trial(trial.target, trial.case, OnnxRuntime())
    other.tensors, other.parameters, other.codes = trial.tensors, trial.parameters, trial.codes
    return trial, other


@functools.cache
def pairs(item: str, population: str) -> list[Pair]:
    """Return COUNT cases of one population; `rows` takes every data set in turn."""
    target = target_of(item)
    known = rows(target.spec, ["only"], "only")
    found = []
    for seed in range(COUNT * POPULATIONS.index(population), COUNT * (POPULATIONS.index(population) + 1)):
        data = {"rows": {}, "ties": {"data": "ties"}}.get(population, {"data": "random"})
        case = build_case(target, HashChooser(seed, {**known[seed % len(known)], **data}))
        if population in ("powers", "eighths"):
            found.append(both(_on_scales(target, case, population)))
        else:
            found.append(both(Trial(target, case, OwnEngine())))
    return found


def scales(kind: str, seed: int, name: str, shape: tuple[int, ...] = ()) -> Any:
    """Return powers of two, or eighths."""
    if kind == "powers":
        return 2.0 ** integers(seed, name, shape, -6, 1)
    return integers(seed, name, shape, 1, 39) / 8


def _halves(seed: int, name: str, shape: tuple[int, ...], largest: int) -> Array:
    """Return numbers from 0 to *largest*, half of them codes and half exactly between two."""
    return integers(seed, name, shape, 0, 2 * largest) / 2


def _on_scales(target: Target, case: Case, kind: str) -> Trial:
    """Return a trial on codes over their whole range and ties between them, under exactly the scales of *kind*."""
    seed = case.data.seed
    ranges, tensors = dict(case.ranges), {}
    step: Any = 1.0
    for name in target.spec.activations:
        step, zero = scales(kind, seed, f"{name}.scale"), int(integers(seed, f"{name}.zero", (), 0, 255))
        ranges[name] = range_of(target, float(step), zero)
        tensors[name] = (_halves(seed, name, case.shapes[name], 255) - zero) * step
    grow = uniform(seed, "grow", ()) * 3 - 1
    if "weight" in case.shapes:
        shape = case.shapes["weight"]
        steps = np.resize(scales(kind, seed, "steps", shape[:1] if is_per_channel(target) else (1,)), shape[0])
        codes = _halves(seed, "weight", shape, 254) - 127
        codes.reshape(shape[0], -1)[:, 0] = 127
        tensors["weight"] = codes * steps.reshape(-1, 1, 1, 1)
        if "bias" in case.shapes:
            tensors["bias"] = (_halves(seed, "bias", shape[:1], 4000) - 2000) * steps * step
        step, grow = step * np.median(steps), 4 + 5 * uniform(seed, "grow", ())
    if "y" in ranges:
        y_scale = 2.0 ** round(np.log2(step) + grow) * (1 if kind == "powers" else scales(kind, seed, "y.scale") / 4)
        ranges["y"] = range_of(target, float(y_scale), int(integers(seed, "y.zero", (), 0, 255)))
    trial = Trial(target, case.but(ranges=ranges), OwnEngine())
    trial.tensors = {name: torch.from_numpy(tensors[name].astype(np.float32)) for name in case.shapes}
    return trial


def uint8(scale: float, zero: int = 0) -> QParams:
    """Return parameters of unsigned 8-bit codes."""
    return QParams(dtype("uint8"), torch.tensor(scale, dtype=torch.float64), torch.tensor(zero), 0, 255)


def given(
    item: str,
    codes: Mapping[str, Array],
    params: Mapping[str, QParams],
    y: QParams | None = None,
    *,
    weight: Array | None = None,
    **attrs: Any,
) -> Pair:
    """Return a pair on *codes* of inputs whose parameters are as given; *y* is None where the platform fixes it."""
    target = target_of(item)
    constants = {} if weight is None else {"weight": torch.from_numpy(weight)}
    shapes = {name: tuple(values.shape) for name, values in (codes | constants).items()}
    ranges = {} if y is None else {"y": range_of(target, float(y.scale), int(y.zero_point))}
    request = Request(target.spec, target.scheme, ORT, shapes, attrs, ranges, constants, params)
    trial = Trial(target, build_case(target, HashChooser(0, {})).but(shapes=shapes, attrs=attrs), OwnEngine())
    trial.tensors, trial.parameters = constants, trial.engine.quantize(request)
    trial.codes = {name: torch.from_numpy(values.astype(np.int64)) for name, values in codes.items()}
    trial.codes |= {name: constant.codes for name, constant in trial.parameters.constants.items()}
    return both(trial)
