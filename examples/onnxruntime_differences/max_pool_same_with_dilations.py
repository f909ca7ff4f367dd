"""A MaxPool with auto_pad=SAME_UPPER and dilations: the result has fewer elements than the operand divided by the strides."""

import sys

import numpy as np
import onnx
import onnxruntime
from onnx import TensorProto, helper

x = np.arange(7, dtype=np.float32).reshape(1, 1, 7)
node = helper.make_node("MaxPool", ["x"], ["y"], kernel_shape=[2], dilations=[2], auto_pad="SAME_UPPER")
graph = helper.make_graph(
    [node],
    "one",
    [helper.make_tensor_value_info("x", TensorProto.FLOAT, x.shape)],
    [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
)
model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 22)], ir_version=10).SerializeToString()
got = onnxruntime.InferenceSession(model, providers=["CPUExecutionProvider"]).run(None, {"x": x})[0]
expected = np.array([1, 2, 3, 4, 5, 6, 5], np.float32)
print(f"onnxruntime {onnxruntime.__version__}, onnx {onnx.__version__}, numpy {np.__version__}")
print(f"expected: ceil(7 / 1) = 7 elements, one place of padding on either side: {expected}")
print(f"got: {got.ravel()}")
wrong = not np.array_equal(got.ravel(), expected)
print("differs" if wrong else "agrees")
sys.exit(wrong)
