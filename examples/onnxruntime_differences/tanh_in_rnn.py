"""The Tanh of an RNN is a difference of two numbers near 1: small operands lose all their digits, though the operator Tanh keeps them."""

import sys

import numpy as np
import onnx
import onnxruntime
from onnx import TensorProto, helper, numpy_helper

x = np.array([[[1e-8], [1e-4], [0.5]]], np.float32)
constants = {"w": np.ones((1, 1, 1), np.float32), "r": np.zeros((1, 1, 1), np.float32)}


def run(node):
    """Return the output of a model of one node."""
    graph = helper.make_graph(
        [node],
        "one",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, x.shape)],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
        [numpy_helper.from_array(v, k) for k, v in constants.items() if k in node.input],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8).SerializeToString()
    return onnxruntime.InferenceSession(model, providers=["CPUExecutionProvider"]).run(None, {"x": x})[0].ravel()


got = run(helper.make_node("RNN", ["x", "w", "r"], ["y"], hidden_size=1, activations=["Tanh"]))
expected = np.tanh(x.astype(np.float64)).ravel()
print(f"onnxruntime {onnxruntime.__version__}, onnx {onnx.__version__}, numpy {np.__version__}")
print(f"expected: {expected.tolist()}; the operator Tanh gives {run(helper.make_node('Tanh', ['x'], ['y'])).tolist()}")
print(f"got: {got.tolist()}")
wrong = not np.allclose(got, expected, rtol=1e-5, atol=0)
print("differs" if wrong else "agrees")
sys.exit(wrong)
