"""float32_any_order: depthwise_1x1_stride_before_padding

a depthwise convolution of one channel is a convolution of one group, whose stride OpenVINO applies before the padding
Severity: wrong. Seen in openvino 2026.4.1.
Case: depthwise_conv2d(x: [1, 1, 1, 1], weight: [1, 1, 1, 1]) dilation=[1, 1] padding=[0, 0, 0, 1] stride=[1, 2]
channels_first, data ties, found by generated cases of quantizer.
"""

import sys

import numpy as np
import onnx
import openvino
from onnx import TensorProto, helper, numpy_helper

x = np.array([[[[-56]]]], np.int8)
s_x, z_x = 0.125, -56
weight = np.array([[[[0]]]], np.int8)
s_weight, z_weight = np.array([1.0]), np.array([0])
s_y, z_y = 0.015625, 0

# Right: the value of the codes in integers and float64, rounded once.
X = np.pad(x.astype(np.int64) - z_x, [(0, 0), (0, 0), (0, 0), (0, 1)])
windows = np.lib.stride_tricks.sliding_window_view(X, (1, 1), (2, 3))[:, :, ::1, ::2, ::1, ::1]
sums = np.einsum("ncyxij,kcij->nkyx", windows, weight.astype(np.int64))
real = sums * (s_x * s_weight.reshape([1, -1, 1, 1]))
steps = real / s_y
expected = np.clip(np.rint(steps) + z_y, -128, 127).astype(np.int64)

print(f"openvino {openvino.__version__}, onnx {onnx.__version__}, numpy {np.__version__}")
print("expected", expected.ravel().tolist(), flush=True)
nodes = [
    helper.make_node("DequantizeLinear", ["x", "x_scale", "x_zero"], ["n0"]),
    helper.make_node("DequantizeLinear", ["weight_codes", "weight_scale", "weight_zero"], ["n1"], axis=0),
    helper.make_node("Conv", ["n0", "n1"], ["n2"], dilations=[1, 1], group=1, pads=[0, 0, 0, 1], strides=[1, 2]),
    helper.make_node("QuantizeLinear", ["n2", "y_scale", "y_zero"], ["n3"]),
]
constants = {
    "x_scale": np.array(0.125, np.float32),
    "x_zero": np.array(-56, np.int8),
    "weight_codes": weight,
    "weight_scale": np.array([1.0], np.float32),
    "weight_zero": np.array([0], np.int8),
    "y_scale": np.array(0.015625, np.float32),
    "y_zero": np.array(0, np.int8),
}
inputs = [helper.make_tensor_value_info("x", TensorProto.INT8, [1, 1, 1, 1])]
outputs = [helper.make_tensor_value_info("n3", TensorProto.INT8, [1, 1, 1, 1])]
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
