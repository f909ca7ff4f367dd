"""MeanVarianceNormalization has no 1e-9 beside the deviation: equal numbers give NaN, and deviations near 1e-9 are too large."""

import sys

import numpy as np
import onnx
import onnxruntime
from onnx import TensorProto, helper

x = np.array([[3.3, 3.3, 3.3, 3.3], [1e-9, 0, 1e-9, 0]], np.float32).reshape(1, 2, 2, 2)
graph = helper.make_graph(
    [helper.make_node("MeanVarianceNormalization", ["x"], ["y"], axes=[0, 2, 3])],
    "one",
    [helper.make_tensor_value_info("x", TensorProto.FLOAT, x.shape)],
    [helper.make_tensor_value_info("y", TensorProto.FLOAT, x.shape)],
)
model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8).SerializeToString()
got = onnxruntime.InferenceSession(model, providers=["CPUExecutionProvider"]).run(None, {"x": x})[0]
values = x.astype(np.float64)
apart = values - values.mean((0, 2, 3), keepdims=True)
expected = apart / (np.sqrt((apart**2).mean((0, 2, 3), keepdims=True)) + 1e-9)
print(f"onnxruntime {onnxruntime.__version__}, onnx {onnx.__version__}, numpy {np.__version__}")
print(f"expected: {expected.ravel().tolist()}")
print(f"got: {got.ravel().tolist()}")
wrong = not np.allclose(got, expected, rtol=1e-5, atol=1e-6)
print("differs" if wrong else "agrees")
sys.exit(wrong)
