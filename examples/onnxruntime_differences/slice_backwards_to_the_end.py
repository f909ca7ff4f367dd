"""A Slice backwards whose end is the largest int64: the standard clamps it to the last element, so that no element is left."""

import sys

import numpy as np
import onnx
import onnxruntime
from onnx import TensorProto, helper, numpy_helper

x = np.array([1, 2, 3], np.float32)
largest = np.iinfo(np.int64).max
constants = {name: np.array([value], np.int64) for name, value in (("s", largest), ("e", largest), ("a", 0), ("t", -1))}
graph = helper.make_graph(
    [helper.make_node("Slice", ["x", "s", "e", "a", "t"], ["y"])],
    "one",
    [helper.make_tensor_value_info("x", TensorProto.FLOAT, x.shape)],
    [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
    [numpy_helper.from_array(v, k) for k, v in constants.items()],
)
model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 22)], ir_version=10).SerializeToString()
got = onnxruntime.InferenceSession(model, providers=["CPUExecutionProvider"]).run(None, {"x": x})[0]
expected = np.zeros(0, np.float32)
print(f"onnxruntime {onnxruntime.__version__}, onnx {onnx.__version__}, numpy {np.__version__}")
print(f"expected: {expected}")
print(f"got: {got}")
wrong = not np.array_equal(got, expected)
print("differs" if wrong else "agrees")
sys.exit(wrong)
