"""float32_any_order: conv2d_huge_sums_not_saturated

OpenVINO's convolution does not saturate results beyond some 2**28 steps: -1.8e9 steps give the code -54, 4.5e8 give
101
Severity: wrong. Seen in openvino 2026.4.1.
Case: conv2d(x: [1, 1, 1, 1], weight: [2, 1, 1, 1], bias: [2]) dilation=[1, 1] groups=1 padding=[0, 0, 0, 0]
stride=[1, 1] channels_first, data corners, found by generated cases of quantizer.
"""

import sys

import numpy as np
import onnx
import openvino
from onnx import TensorProto, helper, numpy_helper

x = np.array([[[[-64]]]], np.int8)
s_x, z_x = 0.0011780981440097094, -64
weight = np.array([[[[0]]], [[[127]]]], np.int8)
s_weight, z_weight = 0.0008799635688774288, 0
bias = np.array([0, -1805811304], np.int32)
s_bias, z_bias = 1.0366834472906589e-06, 0
s_y, z_y = 1.0407488844066393e-06, 0

# Right: the value of the codes in integers and float64, rounded once.
X, W = x.astype(np.int64) - z_x, weight.astype(np.int64)
sums = np.einsum("ncyx,kcij->nkyx", X, W)
real = sums * (s_x * s_weight) + (s_bias * bias.astype(np.int64)).reshape([1, -1, 1, 1])
steps = real / s_y
expected = np.clip(np.rint(steps) + z_y, -128, 127).astype(np.int64)

print(f"openvino {openvino.__version__}, onnx {onnx.__version__}, numpy {np.__version__}")
print("expected", expected.ravel().tolist(), flush=True)
nodes = [
    helper.make_node("DequantizeLinear", ["x", "x_scale", "x_zero"], ["n0"]),
    helper.make_node("DequantizeLinear", ["weight_codes", "weight_scale", "weight_zero"], ["n1"]),
    helper.make_node("DequantizeLinear", ["bias_codes", "bias_scale", "bias_zero"], ["n2"]),
    helper.make_node("Conv", ["n0", "n1", "n2"], ["n3"], dilations=[1, 1], group=1, pads=[0, 0, 0, 0], strides=[1, 1]),
    helper.make_node("QuantizeLinear", ["n3", "y_scale", "y_zero"], ["n4"]),
]
constants = {
    "x_scale": np.array(0.0011780981, np.float32),
    "x_zero": np.array(-64, np.int8),
    "weight_codes": weight,
    "weight_scale": np.array(0.00087996357, np.float32),
    "weight_zero": np.array(0, np.int8),
    "bias_codes": bias,
    "bias_scale": np.array(1.0366834e-06, np.float32),
    "bias_zero": np.array(0, np.int32),
    "y_scale": np.array(1.0407489e-06, np.float32),
    "y_zero": np.array(0, np.int8),
}
inputs = [helper.make_tensor_value_info("x", TensorProto.INT8, [1, 1, 1, 1])]
outputs = [helper.make_tensor_value_info("n4", TensorProto.INT8, [1, 2, 1, 1])]
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
