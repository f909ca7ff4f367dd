"""Random single ONNX nodes, of every operator in the table, against ONNX Runtime and onnx.reference.

A node gives what one of the two gives, or is refused by name. Where the two part, either is right.
"""

from __future__ import annotations

import warnings
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace

import node_elements
import node_moves
import node_rest
import node_sums
import numpy as np
import onnx
import pytest
from node_values import TABLE, Draw, Made
from onnx import helper, numpy_helper
from onnx.reference import ReferenceEvaluator
from qdq_graphs import session

from quantizer.core.errors import QuantizerError
from quantizer.runtime.onnx_backend import prepare

assert node_elements
assert node_moves
assert node_rest
assert node_sums
NODES = 1
"""Nodes of each operator in the gate; a nightly run has two hundred times as many."""
NIGHTLY = 200
TOLERANCES = {
    np.dtype(np.float16): (4e-3, 4e-3),
    np.dtype(np.float32): (2e-5, 2e-6),
    np.dtype(np.float64): (2e-5, 2e-6),
}
"""What the engines' own sums of float32 part by: relative, and of the largest number of the result."""

LOOSE = {
    "GroupNormalization": 30.0,
    "InstanceNormalization": 30.0,
    "LayerNormalization": 30.0,
    "Det": 10.0,
    "BatchNormalization": 10.0,
}
"""Operators whose engines subtract nearly equal numbers in float32: they part from float64 by as much."""
REFERENCE_ERRS = (
    "LRN",
    "NonZero",
    "GlobalMaxPool",
    "Hardmax",
    "Softmax",
    "LogSoftmax",
    "Attention",
    "LSTM",
    "GRU",
    "RNN",
)
"""Where the reference alone is not a witness: it takes the batch for channels, gives other shapes, has no old version of the
operator, or reads no activations."""


def model_of(made: Made) -> tuple[onnx.ModelProto, dict[str, np.ndarray]]:
    """Return the model of one node, and its inputs."""
    names = [f"i{k}" if operand is not None else "" for k, operand in enumerate(made.operands)]
    results = [f"y{k}" for k in range(made.results)]
    attrs = {k: numpy_helper.from_array(v) if isinstance(v, np.ndarray) else v for k, v in made.attrs.items()}
    fed, tensors = {}, []
    for k, (name, operand) in enumerate(zip(names, made.operands, strict=True)):
        if operand is not None:
            if k in made.held:
                tensors.append(numpy_helper.from_array(np.asarray(operand), name))
            else:
                fed[name] = np.asarray(operand)
    inputs = [
        helper.make_tensor_value_info(n, helper.np_dtype_to_tensor_dtype(v.dtype), v.shape) for n, v in fed.items()
    ]
    node = helper.make_node(made.op, names, results, **attrs)
    graph = helper.make_graph([node], "g", inputs, [onnx.ValueInfoProto(name=name) for name in results], tensors)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", made.opset)], ir_version=10)
    return onnx.shape_inference.infer_shapes(model), fed


def expected(made: Made, model: onnx.ModelProto, feeds: dict[str, np.ndarray]) -> dict[str, list[np.ndarray]]:
    """Return each engine's result of the node; if only the reference supports it, also ONNX Runtime's in float32."""
    found: dict[str, list[np.ndarray]] = {}

    def attempt(name: str, run: Callable[[], list[np.ndarray]]) -> None:
        with warnings.catch_warnings(), np.errstate(all="ignore"), suppress(Exception):  # they raise whatever they like
            warnings.simplefilter("ignore")
            found[name] = [np.asarray(value) for value in run()]

    attempt("ort", lambda: session(model, optimized=False).run(None, copies(feeds)))
    attempt("reference", lambda: ReferenceEvaluator(model).run(None, copies(feeds)))
    if "ort" not in found and "reference" in found:
        floats = (np.float64, np.float16)
        narrow = [v if v is None or v.dtype not in floats else v.astype(np.float32) for v in made.operands]
        with np.errstate(all="ignore"):
            other, fed = model_of(replace(made, operands=tuple(narrow)))
        kinds = [value.dtype for value in found["reference"]]
        attempt(
            "float32",
            lambda: [
                v.astype(kind) for v, kind in zip(session(other, optimized=False).run(None, fed), kinds, strict=True)
            ],
        )
    return found


def copies(feeds: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Return copies of the inputs: the reference evaluator of onnx 1.21 modifies its inputs."""
    return {name: value.copy() for name, value in feeds.items()}


def same(own: list[np.ndarray], other: list[np.ndarray], loose: float = 1.0) -> bool:
    """Return whether two results agree in format, shape and numbers; *loose* multiplies the tolerances."""
    for a, b in zip(own, other, strict=True):
        if a.dtype != b.dtype or a.shape != b.shape:
            return False
        if a.dtype not in TOLERANCES:
            if not np.array_equal(a, b):
                return False
            continue
        relative, absolute = TOLERANCES[a.dtype]
        finite = np.abs(b[np.isfinite(b)].astype(np.float64))
        with np.errstate(all="ignore"):
            above = loose * absolute * max(1.0, float(finite.max(initial=0.0)))
            if not np.allclose(a, b, rtol=loose * relative, atol=above, equal_nan=True):
                return False
    return True


def outcome(op: str, seed: int) -> tuple[str, str]:
    """Return the outcome of one random node, and a line that describes it."""
    made = TABLE[op](Draw(seed), op)
    try:
        model, feeds = model_of(made)
    except onnx.shape_inference.InferenceError as err:
        return "invalid", str(err)
    engines = expected(made, model, feeds)
    if not engines or ("ort" not in engines and op in REFERENCE_ERRS):
        return "invalid", "no engine takes it"
    shapes = [None if v is None else f"{v.dtype}{list(v.shape)}" for v in made.operands]
    text = f"{op} seed {seed} opset {made.opset} {shapes} {made.attrs}"
    for name in ("ort", "reference"):
        for info, value in zip(model.graph.output, engines.get(name, ()), strict=False):
            if not info.type.tensor_type.elem_type:
                info.type.tensor_type.elem_type = helper.np_dtype_to_tensor_dtype(value.dtype)
    try:
        with np.errstate(all="ignore"), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            fed = copies(feeds)
            own = [np.asarray(v).copy() for v in prepare(model).run(fed)]
            assert all(np.array_equal(fed[n], feeds[n], equal_nan=feeds[n].dtype.kind == "f") for n in feeds), "changed"
    except QuantizerError as err:
        return "refused", f"{text}: {err}"
    loose = LOOSE.get(op, 1.0) * (20.0 if "float32" in engines else 1.0)
    agreed = [same(own, other, loose) for other in engines.values()]
    if any(agreed):
        return "right" if all(agreed) else "engines part", text
    return "wrong", f"{text}: ours {own}, others {engines}"


@pytest.mark.parametrize("op", sorted(TABLE))
def test_a_node_equals_an_engine_or_is_refused(op, request):
    nightly = request.config.getoption("--op-profile", None) == "nightly"
    found: Counter[str] = Counter()
    for seed in range(NODES * (NIGHTLY if nightly else 1)):
        kind, text = outcome(op, seed)
        assert kind != "wrong", text
        found[kind] += 1
    assert found.total()
