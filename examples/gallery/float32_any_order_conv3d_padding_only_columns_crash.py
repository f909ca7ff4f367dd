"""float32_any_order: conv3d_padding_only_columns_crash

OpenVINO ends with a segmentation fault if the stride of a convolution of volumes skips every column of the operand,
so that all windows lie in the padding on its left and right
Severity: memory. Seen in openvino 2026.4.1.
Case: conv3d(x: [1, 6, 1, 1, 1], weight: [2, 3, 1, 1, 1], bias: [2]) dilation=[1, 1, 2] groups=2 padding=[0, 0, 1, 0,
0, 1] stride=[1, 1, 2] channels_first, data patterns, found by generated cases of quantizer.
"""

import sys

import numpy as np
import onnx
import openvino
from onnx import TensorProto, helper, numpy_helper

x = np.full([1, 6, 1, 1, 1], -64, np.int8)
s_x, z_x = 0.046560969203710556, -64
weight = np.full([2, 3, 1, 1, 1], 0, np.int8)
s_weight, z_weight = 1.0, 0
bias = np.array([0, 1], np.int32)
s_bias, z_bias = 0.046560969203710556, 0
s_y, z_y = 0.001093639642931521, 69

# Right: the value of the codes in integers and float64, rounded once.
X = np.pad(x.astype(np.int64) - z_x, [(0, 0), (0, 0), (0, 0), (0, 0), (1, 1)])
windows = np.lib.stride_tricks.sliding_window_view(X, (1, 1, 1), (2, 3, 4))[:, :, ::1, ::1, ::2, ::1, ::1, ::2]
windows = windows.reshape(len(x), 2, -1, *windows.shape[2:])
W = (weight.astype(np.int64)).reshape(2, -1, *weight.shape[1:])
sums = np.einsum("ngcyxvijl,gkcijl->ngkyxv", windows, W)
sums = sums.reshape(len(x), -1, *sums.shape[3:])
real = sums * (s_x * s_weight) + (s_bias * bias.astype(np.int64)).reshape([1, -1, 1, 1, 1])
steps = real / s_y
expected = np.clip(np.rint(steps) + z_y, -128, 127).astype(np.int64)

print(f"openvino {openvino.__version__}, onnx {onnx.__version__}, numpy {np.__version__}")
print("expected", expected.ravel().tolist(), flush=True)
for _ in range(20):  # what is read may change from run to run
    nodes = [
        helper.make_node("DequantizeLinear", ["x", "x_scale", "x_zero"], ["n0"]),
        helper.make_node("DequantizeLinear", ["weight_codes", "weight_scale", "weight_zero"], ["n1"]),
        helper.make_node("DequantizeLinear", ["bias_codes", "bias_scale", "bias_zero"], ["n2"]),
        helper.make_node("Conv", ["n0", "n1", "n2"], ["n3"], dilations=[1, 1, 2], group=2, pads=[0, 0, 1, 0, 0, 1], strides=[1, 1, 2]),
        helper.make_node("QuantizeLinear", ["n3", "y_scale", "y_zero"], ["n4"]),
    ]
    constants = {
        "x_scale": np.array(0.04656097, np.float32),
        "x_zero": np.array(-64, np.int8),
        "weight_codes": weight,
        "weight_scale": np.array(1.0, np.float32),
        "weight_zero": np.array(0, np.int8),
        "bias_codes": bias,
        "bias_scale": np.array(0.04656097, np.float32),
        "bias_zero": np.array(0, np.int32),
        "y_scale": np.array(0.0010936396, np.float32),
        "y_zero": np.array(69, np.int8),
    }
    inputs = [helper.make_tensor_value_info("x", TensorProto.INT8, [1, 6, 1, 1, 1])]
    outputs = [helper.make_tensor_value_info("n4", TensorProto.INT8, [1, 2, 1, 1, 2])]
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
    if wrong.any():
        break
print("got     ", got.ravel().tolist())
print("differs" if wrong.any() else "agrees")
sys.exit(int(wrong.any()))
