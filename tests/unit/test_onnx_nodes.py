"""ONNX's own node tests, of a few operators; the whole run is `quantizer onnx backend-table`."""

from __future__ import annotations

import inspect

import numpy as np
import onnx
import pytest
import torch
from onnx import TensorProto, defs, helper

from quantizer.cli import main
from quantizer.core.errors import QuantizerError, UnsupportedError
from quantizer.ir.formats.onnx_graph import NEWEST
from quantizer.ir.graph import Graph, Node
from quantizer.runtime.onnx.attention import attention
from quantizer.runtime.onnx.kernels import KERNELS, SPECIAL, Context
from quantizer.runtime.onnx_backend import QuantizerBackend
from quantizer.runtime.onnx_node_tests import STANDARD, corrected_since, node_tests, run

FAMILIES = ("AveragePool", "MaxPool", "Conv", "ConvTranspose", "LayerNormalization", "Resize", "Shape", "ScatterND",
            "GRU", "LSTM", "Max", "Slice", "Split", "TopK", "If", "RoiAlign", "DequantizeLinear", "CumSum", "QLinearConv", "ConvInteger")  # fmt: skip
"""One operator of each family, and those that PPQ answers wrongly."""


@pytest.mark.parametrize("operator", FAMILIES)
def test_operator_passes_its_node_tests(operator):
    findings = [run(test) for test in node_tests() if test.operator == operator]
    refused = {"test_if_seq", "test_if_opt"}
    assert findings
    assert [f for f in findings if f.outcome != "passed" and f.test.name not in refused] == []


def test_the_command_names_a_planted_error(monkeypatch, capsys):
    sinh = next(test for test in node_tests() if test.name == "test_sinh")
    assert run(sinh).outcome == "passed"
    monkeypatch.setattr(KERNELS["Sinh"], "own", lambda x: x.cosh())
    assert run(sinh).outcome == "wrong"
    assert main(["onnx", "backend-table", "--op=Sinh"]) == 1
    assert "test_sinh: wrong: " in capsys.readouterr().out


@pytest.mark.parametrize(("version", "zero_norm", "attention"), [("1.20.0", 1, 9), ("1.21.0", 0, 9), ("1.23.2", 0, 0)])
def test_answers_that_later_releases_corrected_are_left_out(version, zero_norm, attention):
    left_out = corrected_since(version)
    assert sum(name.startswith("test_l2normalization") for name in left_out) == zero_norm
    assert sum(name.startswith("test_attention") for name in left_out) == attention


def test_no_answer_that_a_later_release_corrected_is_asked_for():
    assert corrected_since(onnx.__version__).isdisjoint(test.name for test in node_tests())


def test_every_operator_of_the_frozen_list_has_a_kernel():
    assert [name for name in STANDARD if name not in KERNELS and name != "Constant"] == []


LATER = {
    "Attention": {"left_window_size", "right_window_size"},
    "Range": {"stash_type"},
    "SpaceToDepth": {"mode"},
}
"""Attributes that the newest opset has, and an onnx that is older does not know."""


@pytest.mark.parametrize("name", sorted(KERNELS))
def test_a_kernel_accepts_every_attribute_of_every_version(name):
    domain, _, operator = name.rpartition("::")
    versions = [s for s in defs.get_all_schemas_with_history() if (s.domain, s.name) == (domain, operator)]
    newest_before_seven = max((s.since_version for s in versions if s.since_version <= 7), default=0)
    if not versions:
        assert defs.onnx_opset_version() < NEWEST
        pytest.skip(f"onnx {onnx.__version__} does not have {name} yet")
    for function in filter(None, (KERNELS[name].own, KERNELS[name].mapped)):
        known = inspect.signature(function).parameters
        if any(p.kind is inspect.Parameter.VAR_KEYWORD for p in known.values()):
            continue
        for schema in versions:
            if schema.since_version < newest_before_seven or name == "Constant":
                continue
            tensors = {k for k, a in schema.attributes.items() if a.type == defs.OpSchema.AttrType.TENSOR}
            missing = schema.attributes.keys() - tensors - known.keys()
            assert not missing, f"{name}-{schema.since_version} {function.__name__}: {missing}"
        keywords = {key for key, p in known.items() if p.kind is inspect.Parameter.KEYWORD_ONLY} - set(SPECIAL)
        sharing = {other for other, known in KERNELS.items() if function in (known.own, known.mapped)}
        later = set() if defs.onnx_opset_version() >= NEWEST else LATER.get(name, set())
        assert keywords - later <= {
            k
            for s in defs.get_all_schemas_with_history()
            if f"{s.domain}::{s.name}".removeprefix("::") in sharing
            for k in s.attributes
        }


def one_node(op, inputs, outputs=("y",), opset=18, constants=(), **attrs):
    node = helper.make_node(op, [*inputs, *(c.name for c in constants)], outputs, **attrs)
    values = [helper.make_tensor_value_info(name, kind, shape) for name, (kind, shape) in inputs.items()]
    made = [onnx.ValueInfoProto(name=name) for name in outputs]
    for item in made:
        item.type.tensor_type.elem_type = TensorProto.FLOAT
    graph = helper.make_graph([node], "g", values, made, list(constants))
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=8)


def test_same_padding_follows_the_shape_of_every_call():
    """PPQ ignores auto_pad at the first call and keeps the pads of one shape for the next."""
    weight = helper.make_tensor("w", TensorProto.FLOAT, [1, 1, 3, 3], [1.0] * 9)
    model = one_node(
        "Conv",
        {"x": (TensorProto.FLOAT, [1, 1, None, None])},
        constants=[weight],
        auto_pad="SAME_UPPER",
        strides=[2, 2],
    )
    ready = QuantizerBackend.prepare(model)
    for size in (5, 5, 6, 5):
        (y,) = ready.run([np.ones((1, 1, size, size), np.float32)])
        assert y.shape == (1, 1, 3, 3)
        assert y[0, 0, 0, 0] == (4 if size == 5 else 9)


@pytest.mark.parametrize(
    ("op", "attrs", "expected"),
    [("Softmax", {"axis": 1}, [[0.125] * 4] * 2), ("Softmax", {"axis": -1}, [[0.25] * 4] * 2)],
)
def test_softmax_of_an_old_opset_flattens_to_rows(op, attrs, expected):
    model = one_node(op, {"x": (TensorProto.FLOAT, [1, 2, 4])}, opset=11, **attrs)
    (y,) = QuantizerBackend.prepare(model).run([np.zeros((1, 2, 4), np.float32)])
    np.testing.assert_array_equal(y[0], np.array(expected, np.float32))


def test_an_unsupported_activation_is_refused():
    model = one_node(
        "LSTM",
        {"x": (TensorProto.FLOAT, [1, 1, 1]), "w": (TensorProto.FLOAT, [1, 4, 1]), "r": (TensorProto.FLOAT, [1, 4, 1])},
        opset=14,
        hidden_size=1,
        activations=["Sigmoid", "Tan", "Tanh"],
    )
    ready = QuantizerBackend.prepare(model)
    with pytest.raises(QuantizerError, match="activation 'tan'"):
        ready.run([np.ones((1, 1, 1), np.float32), np.ones((1, 4, 1), np.float32), np.ones((1, 4, 1), np.float32)])


def ran(model, *operands):
    return QuantizerBackend.prepare(model).run(list(operands))[0]


ROW = np.array([[-3, -0.5, 0.5, 3]], np.float32)
FLOATS = (TensorProto.FLOAT, [1, 4])


def integers(name, *values):
    return helper.make_tensor(name, TensorProto.INT64, [len(values)], values)


@pytest.mark.parametrize(("start", "end", "expected"), [(-6, -9, [-3]), (-5, -(2**63), [-3]), (9, 1, [3, 0.5])])
def test_a_backward_slice_starts_within_the_axis(start, end, expected):
    """The standard moves a start before the first element to the first; numpy returns nothing."""
    bounds = [integers("s", start), integers("e", end), integers("a", 1), integers("t", -1)]
    np.testing.assert_array_equal(ran(one_node("Slice", {"x": FLOATS}, constants=bounds), ROW), [expected])


def test_attributes_of_old_versions_that_are_operands_of_new_ones():
    """TopK had k, Upsample scales, as an attribute first."""
    model = one_node("TopK", {"x": FLOATS}, ("y", "i"), 9, k=2, axis=1)
    model.graph.output[1].type.tensor_type.elem_type = TensorProto.INT64
    np.testing.assert_array_equal(ran(model, ROW), [[3, 0.5]])
    model = one_node("Upsample", {"x": (TensorProto.FLOAT, [1, 1, 1, 4])}, opset=8, scales=[1.0, 1.0, 1.0, 2.0])
    np.testing.assert_array_equal(ran(model, ROW[None, None])[0, 0], np.repeat(ROW, 2, axis=1))


@pytest.mark.parametrize("axes", [1, 2, 3])
def test_a_window_larger_than_the_axis_overhangs_with_ceil_mode(axes):
    kernel, shape = [1] * (axes - 1) + [3], [1] * (axes + 1) + [2]
    x = np.array([1, 3], np.float32)
    model = one_node("AveragePool", {"x": (TensorProto.FLOAT, shape)}, kernel_shape=kernel, strides=kernel, ceil_mode=1)
    assert float(ran(model, x.reshape(shape)).reshape(())) == 2
    kernel[-1] = 4
    with pytest.raises(QuantizerError, match="does not fit|may be negative"):
        ran(one_node("MaxPool", {"x": (TensorProto.FLOAT, shape)}, kernel_shape=kernel), x.reshape(shape))


@pytest.mark.parametrize("op", ["MaxPool", "AveragePool", "LpPool"])
@pytest.mark.parametrize(
    "attrs", [{"kernel_shape": [3]}, {"kernel_shape": [2], "dilations": [2]}], ids=["wide", "dilated"]
)
def test_a_window_one_step_longer_than_the_axis_gives_an_empty_result(op, attrs):
    """Shape inference says 0 windows, and ONNX Runtime returns them; MaxPool was refused."""
    model = one_node(op, {"x": (TensorProto.FLOAT, [1, 1, 2])}, opset=22, **attrs)
    assert ran(model, np.array([[[1, 3]]], np.float32)).shape == (1, 1, 0)
    torn = one_node(op, {"x": (TensorProto.FLOAT, [1, 1, 2])}, opset=22, strides=[2], **attrs)
    with pytest.raises(QuantizerError, match="does not fit"):
        ran(torn, np.array([[[1, 3]]], np.float32))  # shape inference finds one window, the reference none


def test_a_resize_cropped_to_one_element_takes_the_middle():
    """Of places 0 to 3 the region from 1/3 to 2/3 is [1, 2], whose middle lies between -0.5 and 0.5."""
    roi = helper.make_tensor("r", TensorProto.FLOAT, [4], [0, 1 / 3, 1, 2 / 3])
    scales = helper.make_tensor("s", TensorProto.FLOAT, [2], [1, 0.25])
    model = one_node(
        "Resize",
        {"x": FLOATS},
        opset=13,
        mode="linear",
        constants=[roi, scales],
        coordinate_transformation_mode="tf_crop_and_resize",
    )
    assert abs(float(ran(model, np.array([[0, 2, 4, 9]], np.float32)).reshape(())) - 3) < 1e-6


def test_a_transposed_convolution_without_output_is_refused_by_name():
    weight = helper.make_tensor("w", TensorProto.FLOAT, [1, 1, 1], [1.0])
    model = one_node("ConvTranspose", {"x": (TensorProto.FLOAT, [1, 1, 2])}, constants=[weight], pads=[1, 2])
    with pytest.raises(QuantizerError, match=r"pads \[1, 2\] of \[2\]: must leave something"):
        ran(model, ROW[None, :, :2])


@pytest.mark.parametrize("known", [24, 99])
def test_an_opset_unknown_to_the_kernels_is_refused_by_name(monkeypatch, known):
    monkeypatch.setattr(defs, "onnx_opset_version", lambda: known)
    for opset in (NEWEST + 1, 200):
        model = one_node("Relu", {"x": FLOATS}, opset=opset)
        said = rf"^model: opset {opset}: must be from 7 to {min(known, NEWEST)}\.$"
        with pytest.raises(UnsupportedError, match=said):
            QuantizerBackend.prepare(model)


def test_an_opset_unknown_to_onnx_asks_for_a_later_onnx(monkeypatch):
    monkeypatch.setattr(defs, "onnx_opset_version", lambda: 24)
    with pytest.raises(UnsupportedError, match=r"^model: opset 25: the installed onnx [\d.]+ knows opsets up to 24\. "):
        QuantizerBackend.prepare(one_node("Relu", {"x": FLOATS}, opset=25))


@pytest.mark.parametrize(
    ("attrs", "operands", "said"),
    [
        ({"later": 1}, 1, "Relu-14: later=1: this kernel has no such attribute."),
        ({}, 2, "Relu-14: 2 operands: this kernel takes 1 at most."),
    ],
)
def test_additions_of_later_operator_versions_are_refused_by_name(attrs, operands, said):
    node = Node("n", "Relu", ("x",) * operands, ("y",), attrs, extra={"since": 14})
    context = Context(Graph("g", (node,), {}, (), ()), torch.device("cpu"))
    with pytest.raises(UnsupportedError) as caught:
        KERNELS["Relu"](node, [torch.ones(1)] * operands, context)
    assert str(caught.value) == said


def attention_model(**attrs):
    given = {name: (TensorProto.FLOAT, [1, 1, 2, 4]) for name in ("q", "k", "v")}
    return one_node("Attention", given | {"mask": (TensorProto.FLOAT, [2, 2])}, opset=23, **attrs)


def test_attention_caps_scores_before_masking():
    q, k, v = 3 * np.sin(np.arange(24, dtype=np.float32) ** 2).reshape(3, 1, 1, 2, 4)
    mask = np.array([[0, -np.inf], [-np.inf, -np.inf]], np.float32)
    y = ran(attention_model(softcap=1.0), q, k, v, mask)
    np.testing.assert_allclose(y[0, 0, 0], v[0, 0, 0], rtol=1e-6)
    np.testing.assert_array_equal(y[0, 0, 1], np.zeros(4, np.float32))
    both = np.array([[0.5, -0.25], [2, 1]], np.float32)
    scores = (q[0, 0] @ k[0, 0].T) / 2
    powers = np.exp(np.tanh(scores.astype(np.float64)) + both)
    expected = powers / powers.sum(1, keepdims=True) @ v[0, 0]
    np.testing.assert_allclose(ran(attention_model(softcap=1.0), q, k, v, both)[0, 0], expected, rtol=1e-5)


def test_an_attention_window_masks_distant_positions():
    q = np.zeros((1, 1, 5, 4), np.float32)
    v = np.arange(20, dtype=np.float32).reshape(1, 1, 5, 4)
    y = attention(
        *map(torch.from_numpy, (q, q, v)),
        is_causal=0,
        softcap=0.0,
        qk_matmul_output_mode=0,
        left_window_size=1,
        right_window_size=0,
        made=1,
    )[0]
    expected = np.stack([v[0, 0, max(0, i - 1) : i + 1].mean(0) for i in range(5)])
    np.testing.assert_allclose(y[0, 0].numpy(), expected)
