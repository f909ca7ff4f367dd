"""float32_any_order: conv_transpose_groups_fail

ONNX's reference evaluator raises for a ConvTranspose of several groups that have more than one input or output
channel; with one of each, every group gets the bias of the first
Severity: wrong. Seen in onnx_reference 1.21.0, 1.23.2.
Cause: the weights of a group are cut along the input channels by the number of output channels; each group is given
the whole bias (op_conv_transpose.py).
Case: conv_transpose2d(x: [1, 2, 1, 1], weight: [2, 2, 1, 1]) dilation=[1, 1] groups=2 output_padding=[0, 0]
padding=[0, 0, 0, 0] stride=[1, 1] channels_first, data random, found by generated cases of quantizer.
"""

import sys

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper
from onnx import version_converter
from onnx.reference import ReferenceEvaluator

x = np.full([1, 2, 1, 1], -128, np.int8)
s_x, z_x = 0.003921568859368563, -128
weight = np.full([2, 2, 1, 1], 0, np.int8)
s_weight, z_weight = np.array([1.0, 1.0]), np.array([0, 0])
s_y, z_y = 0.03307241573929787, -25

# Right: the value of the codes in integers and float64, rounded once.
X = (x.astype(np.int64) - z_x).reshape(1, 2, -1, 1, 1)
W = (weight.astype(np.int64)).reshape(2, 2, -1, 1, 1)
sums = np.zeros([1, 4, 1, 1], np.int64)
for i, j in np.ndindex(1, 1):
    part = np.einsum("ngcyx,kgc->ngkyx", X, W[..., i, j])
    sums[:, :, i * 1 : i * 1 + 1 : 1, j * 1 : j * 1 + 1 : 1] += part.reshape(1, -1, 1, 1)
real = sums[:, :, 0:1, 0:1] * (s_x * np.tile(s_weight, 2).reshape([1, -1, 1, 1]))
steps = real / s_y
expected = np.clip(np.rint(steps) + z_y, -128, 127).astype(np.int64)

print(f"onnx {onnx.__version__}, numpy {np.__version__}")
print("expected", expected.ravel().tolist(), flush=True)
nodes = [
    helper.make_node("DequantizeLinear", ["x", "x_scale", "x_zero"], ["n0"]),
    helper.make_node("DequantizeLinear", ["weight_codes", "weight_scale", "weight_zero"], ["n1"], axis=0),
    helper.make_node("Transpose", ["n1"], ["n2"], perm=[1, 0, 2, 3]),
    helper.make_node("ConvTranspose", ["n0", "n2"], ["n3"], dilations=[1, 1], group=2, output_padding=[0, 0], pads=[0, 0, 0, 0], strides=[1, 1]),
    helper.make_node("QuantizeLinear", ["n3", "y_scale", "y_zero"], ["n4"]),
]
constants = {
    "x_scale": np.array(0.003921569, np.float32),
    "x_zero": np.array(-128, np.int8),
    "weight_codes": weight,
    "weight_scale": np.full([2], 1.0, np.float32),
    "weight_zero": np.full([2], 0, np.int8),
    "y_scale": np.array(0.033072416, np.float32),
    "y_zero": np.array(-25, np.int8),
}
inputs = [helper.make_tensor_value_info("x", TensorProto.INT8, [1, 2, 1, 1])]
outputs = [helper.make_tensor_value_info("n4", TensorProto.INT8, [1, 4, 1, 1])]
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
