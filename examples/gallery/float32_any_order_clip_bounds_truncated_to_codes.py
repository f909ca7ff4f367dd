"""float32_any_order: clip_bounds_truncated_to_codes

OpenVINO truncates the bounds of a Clip between DequantizeLinear and QuantizeLinear to whole codes of the input: with
scales 8 and 1 and the bounds -11.2 and 11.2 the largest code is 8, not 11
Severity: wrong. Seen in openvino 2026.4.1.
Cause: the dequantization is moved behind Clamp, whose bounds become whole codes of the input.
Case: clip(x: [1]) high=0.328125 low=-0.34375 channels_first, data ties, found by generated cases of quantizer.
"""

import sys

import numpy as np
import onnx
import openvino
from onnx import TensorProto, helper, numpy_helper

x = np.array([-53], np.int8)
s_x, z_x = 8.0, -57
s_y, z_y = 16.0, -3

# Right: the value of the codes in integers and float64, rounded once.
X = s_x * (x.astype(np.int64) - z_x)
real = np.clip(X, -0.34375, 0.328125)
steps = real / s_y
expected = np.clip(np.rint(steps) + z_y, -128, 127).astype(np.int64)

print(f"openvino {openvino.__version__}, onnx {onnx.__version__}, numpy {np.__version__}")
print("expected", expected.ravel().tolist(), flush=True)
nodes = [
    helper.make_node("DequantizeLinear", ["x", "x_scale", "x_zero"], ["n0"]),
    helper.make_node("Clip", ["n0", "low", "high"], ["n1"]),
    helper.make_node("QuantizeLinear", ["n1", "y_scale", "y_zero"], ["n2"]),
]
constants = {
    "x_scale": np.array(8.0, np.float32),
    "x_zero": np.array(-57, np.int8),
    "low": np.array(-0.34375, np.float32),
    "high": np.array(0.328125, np.float32),
    "y_scale": np.array(16.0, np.float32),
    "y_zero": np.array(-3, np.int8),
}
inputs = [helper.make_tensor_value_info("x", TensorProto.INT8, [1])]
outputs = [helper.make_tensor_value_info("n2", TensorProto.INT8, [1])]
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
