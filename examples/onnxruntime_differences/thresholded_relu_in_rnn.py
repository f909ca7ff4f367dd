"""An RNN with ThresholdedRelu and no activation_alpha: the standard's default is that of the operator, 1; the threshold is 0."""

import sys

import numpy as np
import onnx
import onnxruntime
from onnx import TensorProto, helper, numpy_helper

x = np.array([[[0.5], [2.0]]], np.float32)
constants = {"w": np.ones((1, 1, 1), np.float32), "r": np.zeros((1, 1, 1), np.float32)}
graph = helper.make_graph(
    [helper.make_node("RNN", ["x", "w", "r"], ["y"], hidden_size=1, activations=["ThresholdedRelu"])],
    "one",
    [helper.make_tensor_value_info("x", TensorProto.FLOAT, x.shape)],
    [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
    [numpy_helper.from_array(v, k) for k, v in constants.items()],
)
model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 22)], ir_version=10).SerializeToString()
got = onnxruntime.InferenceSession(model, providers=["CPUExecutionProvider"]).run(None, {"x": x})[0].ravel()
expected = np.array([0, 2], np.float32)
print(f"onnxruntime {onnxruntime.__version__}, onnx {onnx.__version__}, numpy {np.__version__}")
print(f"expected: {expected}")
print(f"got: {got}")
wrong = not np.array_equal(got, expected)
print("differs" if wrong else "agrees")
sys.exit(wrong)
