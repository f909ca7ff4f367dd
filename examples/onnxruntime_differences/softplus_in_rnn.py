"""The Softplus of an RNN is infinite where its exponential is: log(1 + exp(100)) is 100."""

import sys

import numpy as np
import onnx
import onnxruntime
from onnx import TensorProto, helper, numpy_helper

x = np.array([[[1.0], [100.0]]], np.float32)
constants = {"w": np.ones((1, 1, 1), np.float32), "r": np.zeros((1, 1, 1), np.float32)}
graph = helper.make_graph(
    [helper.make_node("RNN", ["x", "w", "r"], ["y"], hidden_size=1, activations=["Softplus"])],
    "one",
    [helper.make_tensor_value_info("x", TensorProto.FLOAT, x.shape)],
    [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
    [numpy_helper.from_array(v, k) for k, v in constants.items()],
)
model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8).SerializeToString()
got = onnxruntime.InferenceSession(model, providers=["CPUExecutionProvider"]).run(None, {"x": x})[0].ravel()
expected = np.logaddexp(0, x.astype(np.float64)).ravel()
print(f"onnxruntime {onnxruntime.__version__}, onnx {onnx.__version__}, numpy {np.__version__}")
print(f"expected: {expected.tolist()}")
print(f"got: {got.tolist()}")
wrong = not np.allclose(got, expected, rtol=1e-5, atol=0)
print("differs" if wrong else "agrees")
sys.exit(wrong)
