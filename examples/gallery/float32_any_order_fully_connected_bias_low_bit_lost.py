"""float32_any_order: fully_connected_bias_low_bit_lost

OpenVINO subtracts the value of the lowest code from the bias in float32 before it rounds, so that a bias of 23 bits
loses its last one: a sum of exactly -24.5 steps is code -25, not -24
Severity: design. Seen in openvino 2026.4.1.
Cause: DequantizeLinear and QuantizeLinear become one linear function in float32, which starts at the lowest code.
Case: fully_connected(x: [1, 1], weight: [7, 1], bias: [7]) channels_first, data ties, found by generated cases of
quantizer.
"""

import sys

import numpy as np
import onnx
import openvino
from onnx import TensorProto, helper, numpy_helper

x = np.array([[1]], np.int8)
s_x, z_x = 0.0625, 0
weight = np.array([[0], [0], [0], [0], [0], [0], [127]], np.int8)
s_weight, z_weight = np.array([1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 0.0078125]), np.array([0, 0, 0, 0, 0, 0, 0])
bias = np.array([0, 0, 0, 0, 0, 0, -6422655], np.int32)
s_bias = np.array([0.0625, 0.0625, 0.0625, 0.0625, 0.0625, 0.0625, 0.00048828125])
z_bias = np.array([0, 0, 0, 0, 0, 0, 0])
s_y, z_y = 128.0, 0

# Right: the value of the codes in integers and float64, rounded once.
sums = (x.astype(np.int64) - z_x) @ (weight.astype(np.int64)).T
real = sums * (s_x * s_weight) + (s_bias * bias.astype(np.int64))
steps = real / s_y
expected = np.clip(np.rint(steps) + z_y, -128, 127).astype(np.int64)

print(f"openvino {openvino.__version__}, onnx {onnx.__version__}, numpy {np.__version__}")
print("expected", expected.ravel().tolist(), flush=True)
nodes = [
    helper.make_node("DequantizeLinear", ["x", "x_scale", "x_zero"], ["n0"]),
    helper.make_node("DequantizeLinear", ["weight_codes", "weight_scale", "weight_zero"], ["n1"], axis=0),
    helper.make_node("DequantizeLinear", ["bias_codes", "bias_scale", "bias_zero"], ["n2"], axis=0),
    helper.make_node("Gemm", ["n0", "n1", "n2"], ["n3"], transB=1),
    helper.make_node("QuantizeLinear", ["n3", "y_scale", "y_zero"], ["n4"]),
]
constants = {
    "x_scale": np.array(0.0625, np.float32),
    "x_zero": np.array(0, np.int8),
    "weight_codes": weight,
    "weight_scale": np.array([1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 0.0078125], np.float32),
    "weight_zero": np.full([7], 0, np.int8),
    "bias_codes": bias,
    "bias_scale": np.array([0.0625, 0.0625, 0.0625, 0.0625, 0.0625, 0.0625, 0.00048828125], np.float32),
    "bias_zero": np.full([7], 0, np.int32),
    "y_scale": np.array(128.0, np.float32),
    "y_zero": np.array(0, np.int8),
}
inputs = [helper.make_tensor_value_info("x", TensorProto.INT8, [1, 1])]
outputs = [helper.make_tensor_value_info("n4", TensorProto.INT8, [1, 7])]
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
wrong = got != expected
print("got     ", got.ravel().tolist())
print("differs" if wrong.any() else "agrees")
sys.exit(int(wrong.any()))
