"""float32_any_order: conv_weights_halved

without VNNI OpenVINO halves the 8-bit weights of a convolution and rounds them: odd weights lose their last bit, and
weights of 1 give 0, whatever they are multiplied by
Severity: wrong. Seen in openvino 2026.4.1.
Cause: oneDNN stores the weights of convolutions of signed codes halved (wei_adj_scale = 0.5), so that vpmaddubsw does
not saturate.
Kernels that show it: on processors without onednn.avx_vnni, without onednn.avx512_vnni.
See also https://github.com/uxlfoundation/oneDNN/issues/375
See also https://github.com/uxlfoundation/oneDNN/issues/645
Case: conv2d(x: [1, 1, 2, 2], weight: [1, 1, 3, 3]) dilation=[1, 1] groups=1 padding=[1, 1, 0, 0] stride=[1, 1]
channels_first, data small_integers, found by generated cases of quantizer.
"""

import os
import sys

os.environ["ONEDNN_MAX_CPU_ISA"] = "AVX2"

import numpy as np
import onnx
import openvino
from onnx import TensorProto, helper, numpy_helper

x = np.array([[[[0, 0], [0, 96]]]], np.int8)
s_x, z_x = 0.0313725508749485, 0
weight = np.array([[[[0, 0, 0], [0, 0, 0], [0, 0, 127]]]], np.int8)
s_weight, z_weight = np.array([0.015748031437397003]), np.array([0])
s_y, z_y = 0.08235294371843338, -128

# Right: the value of the codes in integers and float64, rounded once.
X = np.pad(x.astype(np.int64) - z_x, [(0, 0), (0, 0), (1, 0), (1, 0)])
windows = np.lib.stride_tricks.sliding_window_view(X, (3, 3), (2, 3))[:, :, ::1, ::1, ::1, ::1]
sums = np.einsum("ncyxij,kcij->nkyx", windows, weight.astype(np.int64))
real = sums * (s_x * s_weight.reshape([1, -1, 1, 1]))
steps = real / s_y
expected = np.clip(np.rint(steps) + z_y, -128, 127).astype(np.int64)

print(f"openvino {openvino.__version__}, onnx {onnx.__version__}, numpy {np.__version__}")
print("expected", expected.ravel().tolist(), flush=True)
nodes = [
    helper.make_node("DequantizeLinear", ["x", "x_scale", "x_zero"], ["n0"]),
    helper.make_node("DequantizeLinear", ["weight_codes", "weight_scale", "weight_zero"], ["n1"], axis=0),
    helper.make_node("Conv", ["n0", "n1"], ["n2"], dilations=[1, 1], group=1, pads=[1, 1, 0, 0], strides=[1, 1]),
    helper.make_node("QuantizeLinear", ["n2", "y_scale", "y_zero"], ["n3"]),
]
constants = {
    "x_scale": np.array(0.03137255, np.float32),
    "x_zero": np.array(0, np.int8),
    "weight_codes": weight,
    "weight_scale": np.array([0.015748031], np.float32),
    "weight_zero": np.array([0], np.int8),
    "y_scale": np.array(0.08235294, np.float32),
    "y_zero": np.array(-128, np.int8),
}
inputs = [helper.make_tensor_value_info("x", TensorProto.INT8, [1, 1, 2, 2])]
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
