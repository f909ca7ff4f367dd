"""ONNX files in the IR: what is read, and one clear error for each kind of bad file."""

from __future__ import annotations

import re

import numpy as np
import onnx
import pytest
import torch
from onnx import AttributeProto, TensorProto, helper, numpy_helper

from quantizer.core.errors import FormatError, GraphError, QuantizerError, UnsupportedError
from quantizer.ir.formats.onnx import from_bytes, from_model, load
from quantizer.ir.formats.onnx_write import to_model
from quantizer.ir.graph import FREE, same
from quantizer.runtime.onnx_model import folded, load_onnx_graph

F = TensorProto.FLOAT


def value(name, shape, kind=F):
    return helper.make_tensor_value_info(name, kind, shape)


def model(nodes, inputs=None, outputs=None, constants=(), opset=18, **named):
    inputs = [value("x", [1, 2])] if inputs is None else inputs
    outputs = [value("y", None)] if outputs is None else outputs
    graph = helper.make_graph(nodes, "g", inputs, outputs, list(constants), **named)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=8)


def node(op, inputs, outputs, **attrs):
    return helper.make_node(op, inputs, outputs, **attrs)


def test_defaults_types_and_free_sizes_are_filled_in():
    given = [value("x", ["n", 4])]
    graph = from_model(
        model(
            [node("LeakyRelu", ["x"], ["h"]), node("ArgMax", ["h"], ["y"], axis=1)],
            given,
            [value("y", None, TensorProto.INT64)],
        )
    )
    assert [n.name for n in graph.nodes] == ["LeakyRelu_0", "ArgMax_0"]
    assert graph.nodes[0].attrs == {"alpha": pytest.approx(0.01)}
    assert graph.nodes[1].attrs == {"axis": 1, "keepdims": 1, "select_last_index": 0}
    assert graph.tensor("h").shape == (FREE, 4)
    assert graph.tensor("y").dtype.name == "int64"


def test_optional_inputs_several_outputs_and_shared_parameters():
    w = numpy_helper.from_array(np.ones((2, 2), np.float32), "w")
    steps = [
        node("MatMul", ["x", "w"], ["a"]),
        node("Gemm", ["a", "w"], ["b"]),
        node("Clip", ["b", "", "top"], ["c"]),
        node("LayerNormalization", ["c", "top"], ["y", "", "d"]),
    ]
    graph = from_model(model(steps, constants=[w, numpy_helper.from_array(np.float32(1), "top")]))
    assert graph.node("Clip_0").inputs == ("b", None, "top")
    assert graph.consumers["w"] == graph.nodes[:2]
    assert graph.node("LayerNormalization_0").outputs == ("y", "LayerNormalization_0#1", "d")


def test_constants_alone_are_computed_once():
    steps = [
        node("Constant", [], ["a"], value_ints=[1, 2]),
        node("Neg", ["a"], ["b"]),
        node("Concat", ["b", "m"], ["s"], axis=0),
        node("Abs", ["s"], ["t"]),
        node("Reshape", ["x", "t"], ["y"]),
    ]
    m = numpy_helper.from_array(np.array([1], np.int64), "m")
    graph = folded(from_model(model(steps, constants=[m])))
    assert [n.op for n in graph.nodes] == ["Reshape"]
    assert graph.tensor("t").data.tolist() == [1, 2, 1]


def test_bodies_become_subgraphs_that_capture():
    body = helper.make_graph([node("Add", ["x", "x"], ["z"])], "then", [], [value("z", [1, 2])])
    other = helper.make_graph([node("Neg", ["x"], ["z"])], "else", [], [value("z", [1, 2])])
    graph = from_model(
        model(
            [node("If", ["c"], ["y"], then_branch=body, else_branch=other)],
            [value("x", [1, 2]), value("c", [], TensorProto.BOOL)],
        )
    )
    assert set(graph.subgraphs) == {"If_0/then_branch", "If_0/else_branch"}
    assert graph.nodes[0].captures == ("x",)


BAD = {
    "cycle": ([node("Add", ["x", "b"], ["a"]), node("Neg", ["a"], ["b"]), node("Neg", ["a"], ["y"])], {}, "cycle"),
    "made twice": ([node("Neg", ["x"], ["y"]), node("Abs", ["x"], ["y"])], {}, "made by node"),
    "name twice": ([node("Neg", ["x"], ["a"], name="n"), node("Abs", ["a"], ["y"], name="n")], {}, "2 nodes are called"),
    "missing initialiser": ([node("Add", ["x", "w"], ["y"])], {}, "'w'"),
    "missing output": ([node("Neg", ["x"], ["a"])], {}, "'y'"),
    "wrong attribute": ([node("Softmax", ["x"], ["y"], axes=1)], {}, "axes"),
    "wrong attribute type": ([node("Softmax", ["x"], ["y"], axis="one")], {}, "axis"),
    "too many inputs": ([node("Neg", ["x", "x"], ["y"])], {}, "Neg"),
    "missing attribute": ([node("DepthToSpace", ["x"], ["y"], name="shuffle")], {},
                          "Required attribute 'blocksize' is missing. (node 'shuffle', DepthToSpace)"),
    "not in order": ([node("Neg", ["a"], ["y"], name="late"), node("Abs", ["x"], ["a"])], {},
                     "input 'a' of node: name: late OpType: Neg is not output of any previous nodes."),
    "output without type": ([node("Neg", ["x"], ["y"])], {"outputs": [onnx.ValueInfoProto(name="y")]},
                            "output 'y' has no type: name the format of its elements."),
    "unknown domain": ([node("Neg", ["x"], ["y"], domain="acme")], {}, "acme"),
    "opset": ([node("Neg", ["x"], ["y"])], {"opset": 4000}, "opset 4000: must be from 7 to"),
    "older operator": ([node("Add", ["x", "x"], ["y"])], {"opset": 6}, "opset 7 or later"),
    "sequence": ([node("SequenceConstruct", ["x"], ["s"]), node("SequenceLength", ["s"], ["y"])],
                 {"outputs": [value("y", None, TensorProto.INT64)]}, "sequence"),
    "declared type": ([node("Cast", ["x"], ["y"], to=TensorProto.INT8)], {}, "types or shapes"),
    "ranks of a convolution": ([node("Abs", ["x"], ["a"]), node("Conv", ["a", "w"], ["c"], name="one"), node("Conv", ["c", "v"], ["y"], name="two")],
                               {"inputs": [value("x", [1, 2, 5]), value("w", [2, 2, 3]), value("v", [2, 2, 3, 3])]},
                               "'c' has 3 axes and the weight 'v' has 4: the numbers must be equal (node 'two', Conv)"),
    "blocks beyond numbers": ([node("DepthToSpace", ["x"], ["y"], name="shuffle", blocksize=2**62)], {"inputs": [value("x", [1, 4, 2, 2])]},
                              "blocksize=4611686018427387904: must be from 1 to 2147483647 (node 'shuffle', DepthToSpace)"),
    "strides of nothing": ([node("MaxPool", ["x"], ["y"], name="pool", kernel_shape=[2], strides=[0])], {"inputs": [value("x", [1, 4, 5])]},
                           "strides=[0]: must be at least 1 (node 'pool', MaxPool)"),
    "parts without end": ([node("Split", ["x"], ["y"], name="cut", num_outputs=2**31 - 1)], {},
                          "num_outputs=2147483647: has 1 outputs (node 'cut', Split)"),
    "a shape without end": ([node("ConstantOfShape", ["n"], ["y"], name="fill")], {"inputs": [value("n", [10**6], TensorProto.INT64)]},
                            "'n' has 1000000 elements: no tensor has so many axes (node 'fill', ConstantOfShape)"),
    "giant value": ([node("MatMul", ["a", "b"], ["y"])],
                    {"inputs": [value("a", [2**17, 1]), value("b", [1, 2**17])]}, "more than"),
}  # fmt: skip


@pytest.mark.parametrize("name", BAD)
def test_bad_model_gets_one_clear_error(name):
    nodes, named, text = BAD[name]
    with pytest.raises(QuantizerError, match=re.escape(text)):
        from_model(model(nodes, **named))


def test_a_long_vector_is_not_followed_element_by_element():
    """ONNX's inference would take 40 bytes for each of them: 80 GB here."""
    given = [value("x", [1]), value("n", [2**31 - 1], TensorProto.BOOL)]
    nodes = [node("Unsqueeze", ["n", "axes"], ["u"]), node("Cast", ["x"], ["y"], to=F)]
    constant = numpy_helper.from_array(np.array([0]), "axes")
    graph = from_model(model(nodes, given, constants=[constant]))
    assert graph.tensor("u").shape == (1, 2**31 - 1)


def test_wrong_types_are_an_error():
    with pytest.raises(FormatError, match="types or shapes"):
        from_model(model([node("Add", ["x", "i"], ["y"])], [value("x", [1]), value("i", [1], TensorProto.INT64)]))


def test_all_unsupported_operators_in_one_error(tmp_path):
    steps = [
        node("Multinomial", ["x"], ["a"]),
        node("Bernoulli", ["x"], ["b"]),
        node("Foo", ["x"], ["f"]),
        node("Neg", ["x"], ["y"]),
    ]
    path = tmp_path / "m.onnx"
    onnx.save(model(steps, [value("x", [2, 2])]), path)
    with pytest.raises(UnsupportedError, match="opset 18 has no Foo; nothing runs Bernoulli, Multinomial"):
        load_onnx_graph(path)


def tensor(name="w", dims=(2,), **fields):
    return TensorProto(name=name, data_type=F, dims=dims, **fields)


@pytest.mark.parametrize(
    ("constant", "text"),
    [
        (tensor(raw_data=b"abc"), "needs 8 bytes, the file holds 3"),
        (tensor(float_data=[1.0]), "needs 2 values, the file holds 1"),
        (tensor(dims=(2**31, 4), raw_data=b"abcd"), "more than"),
        (tensor(dims=(2**62, 0), raw_data=b""), "more elements than 63 bits can count"),
        (tensor(dims=(-2,), raw_data=b"abcd"), "negative"),
    ],
)
def test_an_inconsistent_initializer_is_refused(constant, text):
    with pytest.raises(FormatError, match=text):
        from_model(model([node("Add", ["x", "w"], ["y"])], constants=[constant]))


def test_a_giant_shape_in_a_small_file_is_refused_before_allocation():
    from quantizer.runtime.onnx_backend import QuantizerBackend

    shape = numpy_helper.from_array(np.array([2**20, 2**20], np.int64), "s")
    step = node("ConstantOfShape", ["s"], ["y"])
    with pytest.raises(FormatError, match="more than"):
        from_model(model([step], inputs=[], constants=[shape]))
    fed = QuantizerBackend.prepare(model([step], inputs=[value("s", [2], TensorProto.INT64)]))
    with pytest.raises(QuantizerError, match="more than"):
        fed.run([np.array([2**20, 2**20])])


def external(location, folder, size=8):
    constant = tensor(raw_data=bytes(8))
    onnx.external_data_helper.set_external_data(constant, location, 0, size)
    constant.ClearField("raw_data")
    path = folder / "m.onnx"
    path.write_bytes(model([node("Add", ["x", "w"], ["y"])], constants=[constant]).SerializeToString())
    return path


def test_external_data_beside_the_model_is_read(tmp_path):
    (tmp_path / "w.bin").write_bytes(np.array([3, 4], np.float32).tobytes())
    assert load(external("w.bin", tmp_path)).tensor("w").data.tolist() == [3, 4]


@pytest.mark.parametrize(
    "location", ["../w.bin", "/etc/hostname", "link.bin", "absent.bin", "", "short.bin", "a" * 300, "a\0b"]
)
def test_external_data_elsewhere_is_refused(tmp_path, location):
    folder = tmp_path / "model"
    folder.mkdir()
    (tmp_path / "w.bin").write_bytes(bytes(8))
    (folder / "link.bin").symlink_to(tmp_path / "w.bin")
    (folder / "short.bin").write_bytes(bytes(4))
    with pytest.raises(FormatError, match="external data"):
        load(external(location, folder))


def test_external_data_with_a_non_text_name_is_refused(tmp_path):
    path = external("ABCDEF", tmp_path)
    path.write_bytes(path.read_bytes().replace(b"ABCDEF", b"\xff\xfeCDEF"))
    with pytest.raises(
        FormatError, match=r"'w': external data b'\\xff\\xfeCDEF': the file's name must be text in UTF-8"
    ):
        load(path)


def test_a_segment_of_a_tensor_is_refused():
    constant = tensor(float_data=[1.0, 2.0])
    constant.segment.begin = 0
    with pytest.raises(UnsupportedError, match=r"'w': holds a segment of a tensor: write the tensor whole"):
        from_model(model([node("Add", ["x", "w"], ["y"])], constants=[constant]))


def test_every_number_format_is_read_and_written_back():
    from quantizer.ir.formats.onnx_values import ONNX_DTYPES, read_tensor, to_numpy

    for code, dtype in ONNX_DTYPES.items():
        kind = helper.tensor_dtype_to_np_dtype(code)
        values = np.array([0, 1, 1, 0, 1]).astype(kind)
        read = read_tensor("t", numpy_helper.from_array(values, "t"), None)
        assert read.dtype == dtype
        again = to_numpy(read.data, dtype)
        assert again.dtype == kind
        assert again.tobytes() == values.tobytes()


def with_empty(op, inputs, key, kind, domain="", **attrs):
    step = helper.make_node(op, inputs, ["y"], domain=domain, **attrs)
    step.attribute.append(helper.make_attribute(key, [], attr_type=kind))
    return step


@pytest.mark.parametrize(
    ("step", "opset"),
    [
        (with_empty("LSTM", ["s", "w", "w"], "activation_alpha", AttributeProto.FLOATS, hidden_size=2), 14),
        (with_empty("ReduceSum", ["x"], "axes", AttributeProto.INTS, keepdims=0), 11),
    ],
)
def test_an_empty_list_is_written_with_its_schema_type(step, opset):
    w = numpy_helper.from_array(np.ones((1, 8, 2), np.float32), "w")
    given = model([step], [value("x", [1, 2]), value("s", [3, 1, 2])], constants=[w], opset=opset)
    graph = from_model(given)
    written = to_model(graph)
    assert same(graph, from_model(written)) is None
    (found,) = written.graph.node
    assert step.attribute[-1] in found.attribute


def test_an_empty_list_without_a_schema_is_refused():
    given = model([with_empty("Own", ["x"], "sizes", AttributeProto.INTS, domain="elsewhere")])
    given.opset_import.append(helper.make_opsetid("elsewhere", 1))
    with pytest.raises(
        UnsupportedError, match=r"Own\): attribute 'sizes' is an empty list, and no schema gives its type"
    ):
        to_model(from_model(given))


def test_a_missing_file_is_refused(tmp_path):
    with pytest.raises(FormatError, match="cannot be read"):
        load(tmp_path / "no.onnx")


def test_shapes_follow_the_inputs_not_the_file():
    from quantizer.runtime.torch_executor import TorchExecutor

    graph = from_model(model([node("Shape", ["x"], ["y"])], outputs=[value("y", None, TensorProto.INT64)]))
    executor = TorchExecutor(graph, platform="fp32")
    assert [executor(torch.zeros(1, n))[0].tolist() for n in (2, 5, 2)] == [[1, 2], [1, 5], [1, 2]]


def test_garbage_is_not_a_model():
    for data in (b"", b"\x00" * 40, b"not a model", bytes(range(256))):
        with pytest.raises((FormatError, GraphError)):
            from_bytes(data)
