"""float32_any_order: avg_pool_padding_holds_code_0

OpenVINO pads with the code 0 instead of the zero point if count_include_pad is set: the average of codes -128, which
all represent 0, is the code 19
Severity: wrong. Seen in openvino 2026.4.1.
Cause: the dequantization is moved behind AvgPool, whose padding stays 0, in codes now.
Kernels that show it: on processors with onednn.avx512f.
Case: avg_pool2d(x: [1, 1, 1, 1]) ceil_mode=False count_include_pad=True kernel=[3, 2] padding=[0, 0, 2, 1] stride=[1,
1] channels_first, data random, found by generated cases of quantizer.
"""

import os
import sys

os.environ["ONEDNN_MAX_CPU_ISA"] = "AVX512_CORE"

import numpy as np
import onnx
import openvino
from onnx import TensorProto, helper, numpy_helper

x = np.array([[[[-128]]]], np.int8)
s_x, z_x = 0.003921568859368563, -128
s_y, z_y = 0.002839582972228527, -128

# Right: the value of the codes in integers and float64, rounded once.
X = s_x * (x.astype(np.int64) - z_x)
X = np.pad(X, [(0, 0), (0, 0), (0, 2), (0, 1)])
windows = np.lib.stride_tricks.sliding_window_view(X, (3, 2), (2, 3))[:, :, ::1, ::1, ::1, ::1]
real = windows.sum((-2, -1)) / 6
steps = real / s_y
expected = np.clip(np.rint(steps) + z_y, -128, 127).astype(np.int64)

print(f"openvino {openvino.__version__}, onnx {onnx.__version__}, numpy {np.__version__}")
print("expected", expected.ravel().tolist(), flush=True)
nodes = [
    helper.make_node("DequantizeLinear", ["x", "x_scale", "x_zero"], ["n0"]),
    helper.make_node("AveragePool", ["n0"], ["n1"], ceil_mode=0, count_include_pad=1, kernel_shape=[3, 2], pads=[0, 0, 2, 1], strides=[1, 1]),
    helper.make_node("QuantizeLinear", ["n1", "y_scale", "y_zero"], ["n2"]),
]
constants = {
    "x_scale": np.array(0.003921569, np.float32),
    "x_zero": np.array(-128, np.int8),
    "y_scale": np.array(0.002839583, np.float32),
    "y_zero": np.array(-128, np.int8),
}
inputs = [helper.make_tensor_value_info("x", TensorProto.INT8, [1, 1, 1, 1])]
outputs = [helper.make_tensor_value_info("n2", TensorProto.INT8, [1, 1, 1, 1])]
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
