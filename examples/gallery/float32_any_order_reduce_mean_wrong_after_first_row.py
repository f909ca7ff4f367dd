"""float32_any_order: reduce_mean_wrong_after_first_row

OpenVINO's mean of the last two of three axes without keepdims is wrong from the second row on, and where the rows are
equal: zero point 3 of the input gives code -23, not -5
Severity: wrong. Seen in openvino 2026.4.1.
Case: reduce_mean(x: [2, 1, 1]) axes=[1, 2] keepdims=False channels_first, data one_hot, found by generated cases of
quantizer.
"""

import sys

import numpy as np
import onnx
import openvino
from onnx import TensorProto, helper, numpy_helper

x = np.full([2, 1, 1], 31, np.int8)
s_x, z_x = 0.053799018263816833, 31
s_y, z_y = 0.008406097069382668, 127

# Right: the value of the codes in integers and float64, rounded once.
X = s_x * (x.astype(np.int64) - z_x)
real = X.mean((1, 2), keepdims=False)
steps = real / s_y
expected = np.clip(np.rint(steps) + z_y, -128, 127).astype(np.int64)

print(f"openvino {openvino.__version__}, onnx {onnx.__version__}, numpy {np.__version__}")
print("expected", expected.ravel().tolist(), flush=True)
nodes = [
    helper.make_node("DequantizeLinear", ["x", "x_scale", "x_zero"], ["n0"]),
    helper.make_node("ReduceMean", ["n0"], ["n1"], axes=[1, 2], keepdims=0),
    helper.make_node("QuantizeLinear", ["n1", "y_scale", "y_zero"], ["n2"]),
]
constants = {
    "x_scale": np.array(0.05379902, np.float32),
    "x_zero": np.array(31, np.int8),
    "y_scale": np.array(0.008406097, np.float32),
    "y_zero": np.array(127, np.int8),
}
inputs = [helper.make_tensor_value_info("x", TensorProto.INT8, [2, 1, 1])]
outputs = [helper.make_tensor_value_info("n2", TensorProto.INT8, [2])]
kept = [numpy_helper.from_array(np.array(values, order='C'), name) for name, values in constants.items()]
graph = helper.make_graph(nodes, "one", inputs, outputs, kept)
made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8)
model = made.SerializeToString()
core = openvino.Core()
config = {"INFERENCE_NUM_THREADS": 1, "INFERENCE_PRECISION_HINT": "f32"}
compiled = core.compile_model(core.read_model(model, b""), "CPU", config)
got = next(iter(compiled({"x": x}).values()))
got = got.astype(np.int64)
assert got.shape == expected.shape, f"shape {got.shape}, right is {expected.shape}"
wrong = np.abs(got - np.clip(steps + z_y, -128, 127)) > 0.501
print("got     ", got.ravel().tolist())
print("differs" if wrong.any() else "agrees")
sys.exit(int(wrong.any()))
