"""A MaxPool whose window holds a NaN: the result depends on its position, and a window of -inf next to it gives -3.4e38."""

import sys

import numpy as np
import onnx
import onnxruntime
from onnx import TensorProto, helper

x = np.array([[[np.nan, 1, 2, np.nan, np.nan, -np.inf]]], np.float32)
graph = helper.make_graph(
    [helper.make_node("MaxPool", ["x"], ["y"], kernel_shape=[2])],
    "one",
    [helper.make_tensor_value_info("x", TensorProto.FLOAT, x.shape)],
    [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
)
model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 22)], ir_version=10).SerializeToString()
got = onnxruntime.InferenceSession(model, providers=["CPUExecutionProvider"]).run(None, {"x": x})[0]
windows = np.lib.stride_tricks.sliding_window_view(x, 2, axis=2)
spread, ignored = windows.max(axis=-1), np.fmax.reduce(windows, axis=-1)
print(f"onnxruntime {onnxruntime.__version__}, onnx {onnx.__version__}, numpy {np.__version__}")
print(
    f"expected: a NaN in every window that holds one, {spread.ravel()}, or in none but those of NaN alone, {ignored.ravel()}"
)
print(f"got: {got.ravel()}")
wrong = not (np.array_equal(got, spread, equal_nan=True) or np.array_equal(got, ignored, equal_nan=True))
print("differs" if wrong else "agrees")
sys.exit(wrong)
