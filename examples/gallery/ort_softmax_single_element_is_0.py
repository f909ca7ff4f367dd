"""ort: softmax_single_element_is_0

QLinearSoftmax gives 0, not 1, along an axis of one element: 256 times the only exponential leaves float32, and x86-64
converts the infinity to 0; 1.32 gives the largest code
Severity: wrong. Seen in onnxruntime 1.31.1.
Cause: 256 times the only exponential leaves float32; the infinity is cast to 0.
See also https://github.com/microsoft/onnxruntime/issues/29727
Case: softmax(x: [1]) axis=0 channels_first, data random, found by generated cases of quantizer.
"""

import sys

import numpy as np
import onnx
import onnxruntime
from onnx import TensorProto, helper, numpy_helper

x = np.array([0], np.uint8)
s_x, z_x = 0.003921568859368563, 0
s_y, z_y = 0.00390625, 0

# Right: the value of the codes in integers and float64, rounded once.
X = s_x * (x.astype(np.int64) - z_x)
powers = np.exp(X - X.max(0, keepdims=True))
real = powers / powers.sum(0, keepdims=True)
steps = real / s_y
expected = np.clip(np.rint(steps) + z_y, 0, 255).astype(np.int64)

print(f"onnxruntime {onnxruntime.__version__}, onnx {onnx.__version__}, numpy {np.__version__}")
print("expected", expected.ravel().tolist(), flush=True)
nodes = [
    helper.make_node("QLinearSoftmax", ["x", "x_scale", "x_zero", "y_scale", "y_zero"], ["n0"], domain="com.microsoft", axis=0, opset=13),
]
constants = {
    "x_scale": np.array(0.003921569, np.float32),
    "x_zero": np.array(0, np.uint8),
    "y_scale": np.array(0.00390625, np.float32),
    "y_zero": np.array(0, np.uint8),
}
inputs = [helper.make_tensor_value_info("x", TensorProto.UINT8, [1])]
outputs = [onnx.ValueInfoProto(name="n0")]
kept = [numpy_helper.from_array(np.array(values, order='C'), name) for name, values in constants.items()]
graph = helper.make_graph(nodes, "one", inputs, outputs, kept)
made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13), helper.make_opsetid("com.microsoft", 1)], ir_version=8)
model = made.SerializeToString()
options = onnxruntime.SessionOptions()
options.intra_op_num_threads = 1
options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
session = onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
got = session.run(None, {"x": x})[0]
got = got.astype(np.int64)
assert got.shape == expected.shape, f"shape {got.shape}, right is {expected.shape}"
wrong = np.abs(got - np.clip(steps + z_y, 0, 255)) > 0.501
print("got     ", got.ravel().tolist())
print("differs" if wrong.any() else "agrees")
sys.exit(int(wrong.any()))
