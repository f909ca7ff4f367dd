"""float32_any_order: max_pool_pads_misordered

ONNX's reference evaluator reads the pads of a MaxPool with stride 1 as top, bottom, left, right; in ONNX they are
top, left, bottom, right. The result has another shape, and windows without elements raise an error
Severity: wrong. Seen in onnx_reference 1.21.0, 1.23.2.
Cause: pad_top, pad_bottom, pad_left, pad_right = pads (_op_common_pool.py).
Case: max_pool2d(x: [1, 1, 1, 1]) ceil_mode=False kernel=[1, 2] padding=[0, 1, 0, 0] stride=[1, 1] channels_first,
data random, found by generated cases of quantizer.
"""

import sys

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper
from onnx import version_converter
from onnx.reference import ReferenceEvaluator

x = np.array([[[[-128]]]], np.int8)
s_x, z_x = 0.003921568859368563, -128
s_y, z_y = 0.003921568859368563, -128

# Right: the value of the codes in integers and float64, rounded once.
X = s_x * (x.astype(np.int64) - z_x)
X = np.pad(X, [(0, 0), (0, 0), (0, 0), (1, 0)], constant_values=-np.inf)
windows = np.lib.stride_tricks.sliding_window_view(X, (1, 2), (2, 3))[:, :, ::1, ::1, ::1, ::1]
real = windows.max((-2, -1))
steps = real / s_y
expected = np.clip(np.rint(steps) + z_y, -128, 127).astype(np.int64)

print(f"onnx {onnx.__version__}, numpy {np.__version__}")
print("expected", expected.ravel().tolist(), flush=True)
nodes = [
    helper.make_node("DequantizeLinear", ["x", "x_scale", "x_zero"], ["n0"]),
    helper.make_node("MaxPool", ["n0"], ["n1"], ceil_mode=0, kernel_shape=[1, 2], pads=[0, 1, 0, 0], strides=[1, 1]),
    helper.make_node("QuantizeLinear", ["n1", "y_scale", "y_zero"], ["n2"]),
]
constants = {
    "x_scale": np.array(0.003921569, np.float32),
    "x_zero": np.array(-128, np.int8),
    "y_scale": np.array(0.003921569, np.float32),
    "y_zero": np.array(-128, np.int8),
}
inputs = [helper.make_tensor_value_info("x", TensorProto.INT8, [1, 1, 1, 1])]
outputs = [helper.make_tensor_value_info("n2", TensorProto.INT8, [1, 1, 1, 1])]
kept = [numpy_helper.from_array(np.array(values, order='C'), name) for name, values in constants.items()]
graph = helper.make_graph(nodes, "one", inputs, outputs, kept)
made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8)
model = made.SerializeToString()
if made.opset_import[0].version < 21:
    made = version_converter.convert_version(made, 21)
got = ReferenceEvaluator(made).run(None, {"x": x})[0]
got = got.astype(np.int64)
assert got.shape == expected.shape, f"shape {got.shape}, right is {expected.shape}"
wrong = np.abs(got - np.clip(steps + z_y, -128, 127)) > 0.501
print("got     ", got.ravel().tolist())
print("differs" if wrong.any() else "agrees")
sys.exit(int(wrong.any()))
