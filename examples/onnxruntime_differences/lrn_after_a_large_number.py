"""LRN over channels adds one square and subtracts another: behind a large number the sums are 0 or below, and results infinite."""

import sys

import numpy as np
import onnx
import onnxruntime
from onnx import TensorProto, helper

x = np.array([4096, 1, 1, 1, 1, 1], np.float32).reshape(1, 6, 1, 1)
graph = helper.make_graph(
    [helper.make_node("LRN", ["x"], ["y"], size=3, alpha=3.0, beta=1.0, bias=1.0)],
    "one",
    [helper.make_tensor_value_info("x", TensorProto.FLOAT, x.shape)],
    [helper.make_tensor_value_info("y", TensorProto.FLOAT, x.shape)],
)
model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8).SerializeToString()
got = onnxruntime.InferenceSession(model, providers=["CPUExecutionProvider"]).run(None, {"x": x})[0].ravel()
values = x.ravel().astype(np.float64)
sums = np.array([np.sum(values[max(0, c - 1) : c + 2] ** 2) for c in range(6)])
expected = values / (1 + sums)
print(f"onnxruntime {onnxruntime.__version__}, onnx {onnx.__version__}, numpy {np.__version__}")
print(f"expected: {expected.tolist()}")
print(f"got: {got.tolist()}")
wrong = not np.allclose(got, expected, rtol=1e-5, atol=0)
print("differs" if wrong else "agrees")
sys.exit(wrong)
