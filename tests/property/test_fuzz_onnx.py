"""Any bytes in an ONNX file give a graph or a user error."""

from __future__ import annotations

from functools import cache

import numpy as np
import onnx
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from onnx import TensorProto, helper, numpy_helper

from quantizer.core.errors import QuantizerError
from quantizer.ir.formats.onnx import from_bytes
from quantizer.runtime.dispatch import refuse_unsupported
from quantizer.runtime.onnx_model import folded


@cache
def sound() -> bytes:
    """A model with a bit of everything: constants, attributes of all kinds, a body, free sizes."""
    body = helper.make_graph(
        [helper.make_node("Neg", ["h"], ["z"])], "b", [], [helper.make_tensor_value_info("z", 1, [1, 2])]
    )
    nodes = [
        helper.make_node("Constant", [], ["k"], value=numpy_helper.from_array(np.array([1, -1], np.int64))),
        helper.make_node("Gemm", ["x", "w", "b"], ["h"], alpha=0.5, transB=1),
        helper.make_node("If", ["c"], ["i"], then_branch=body, else_branch=body),
        helper.make_node("Resize", ["q", "", "s"], ["r"], mode="nearest"),
        helper.make_node("Reshape", ["i", "k"], ["y"], allowzero=0),
    ]
    constants = [
        numpy_helper.from_array(np.ones((2, 3), np.float32), "w"),
        numpy_helper.from_array(np.ones(2, np.float32), "b"),
        numpy_helper.from_array(np.array([1, 1, 2, 2], np.float32), "s"),
    ]
    inputs = [
        helper.make_tensor_value_info("x", 1, ["n", 3]),
        helper.make_tensor_value_info("c", TensorProto.BOOL, []),
        helper.make_tensor_value_info("q", 1, [1, 1, 2, 2]),
    ]
    outputs = [helper.make_tensor_value_info(name, 1, None) for name in ("y", "r")]
    graph = helper.make_graph(nodes, "g", inputs, outputs, constants)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=8)
    return model.SerializeToString()


def loads(data: bytes) -> bool:
    try:
        graph = from_bytes(data)
        refuse_unsupported(graph)
        folded(graph)
    except QuantizerError as err:
        assert str(err)
        return False
    return True


def test_the_sound_model_loads():
    assert loads(sound())


@settings(max_examples=150, deadline=None, derandomize=True, database=None, suppress_health_check=list(HealthCheck))
@given(st.integers(0, len(sound()) - 1))
def test_a_truncated_model_loads_only_if_it_is_complete(length):
    assert not loads(sound()[:length]) or onnx.ModelProto.FromString(sound()[:length]).graph.output


@settings(max_examples=400, deadline=None, derandomize=True, database=None, suppress_health_check=list(HealthCheck))
@given(st.lists(st.tuples(st.integers(0, len(sound()) - 1), st.integers(0, 255)), min_size=1, max_size=4))
def test_changed_bytes_are_read_or_refused(changes):
    data = bytearray(sound())
    for place, byte in changes:
        data[place] = byte
    loads(bytes(data))


@settings(max_examples=100, deadline=None, derandomize=True, database=None)
@given(st.binary(max_size=200))
def test_random_bytes_are_refused(data):
    assert not loads(data)
