"""float32_any_order: conv_transpose_pair_sums_saturate

OpenVINO adds the products of 8-bit codes of two channels of a transposed convolution in int16, which saturates: 127 *
127 next to a weight of 127 gives 255
Severity: wrong. Seen in openvino 2026.4.1.
Cause: vpmaddubsw adds two products in int16 with saturation.
Kernels that show it: on processors without onednn.avx_vnni, without onednn.avx512_vnni.
See also https://github.com/uxlfoundation/oneDNN/issues/476
Case: conv_transpose2d(x: [1, 2, 1, 1], weight: [1, 2, 1, 1]) dilation=[1, 1] groups=1 output_padding=[0, 0]
padding=[0, 0, 0, 0] stride=[1, 1] channels_first, data accumulator_limit, found by generated cases of quantizer.
"""

import os
import sys

os.environ["ONEDNN_MAX_CPU_ISA"] = "AVX2"

import numpy as np
import onnx
import openvino
from onnx import TensorProto, helper, numpy_helper

x = np.array([[[[0]], [[127]]]], np.int8)
s_x, z_x = 0.006398399360477924, 0
weight = np.full([1, 2, 1, 1], 127, np.int8)
s_weight, z_weight = 0.0014139009872451425, 0
s_y, z_y = 0.004136153031140566, 0

# Right: the value of the codes in integers and float64, rounded once.
X = (x.astype(np.int64) - z_x).reshape(1, 1, -1, 1, 1)
W = (weight.astype(np.int64)).reshape(1, 1, -1, 1, 1)
sums = np.zeros([1, 1, 1, 1], np.int64)
for i, j in np.ndindex(1, 1):
    part = np.einsum("ngcyx,kgc->ngkyx", X, W[..., i, j])
    sums[:, :, i * 1 : i * 1 + 1 : 1, j * 1 : j * 1 + 1 : 1] += part.reshape(1, -1, 1, 1)
real = sums[:, :, 0:1, 0:1] * (s_x * s_weight)
steps = real / s_y
expected = np.clip(np.rint(steps) + z_y, -128, 127).astype(np.int64)

print(f"openvino {openvino.__version__}, onnx {onnx.__version__}, numpy {np.__version__}")
print("expected", expected.ravel().tolist(), flush=True)
nodes = [
    helper.make_node("DequantizeLinear", ["x", "x_scale", "x_zero"], ["n0"]),
    helper.make_node("DequantizeLinear", ["weight_codes", "weight_scale", "weight_zero"], ["n1"]),
    helper.make_node("Transpose", ["n1"], ["n2"], perm=[1, 0, 2, 3]),
    helper.make_node("ConvTranspose", ["n0", "n2"], ["n3"], dilations=[1, 1], group=1, output_padding=[0, 0], pads=[0, 0, 0, 0], strides=[1, 1]),
    helper.make_node("QuantizeLinear", ["n3", "y_scale", "y_zero"], ["n4"]),
]
constants = {
    "x_scale": np.array(0.0063983994, np.float32),
    "x_zero": np.array(0, np.int8),
    "weight_codes": weight,
    "weight_scale": np.array(0.001413901, np.float32),
    "weight_zero": np.array(0, np.int8),
    "y_scale": np.array(0.004136153, np.float32),
    "y_zero": np.array(0, np.int8),
}
inputs = [helper.make_tensor_value_info("x", TensorProto.INT8, [1, 2, 1, 1])]
outputs = [helper.make_tensor_value_info("n4", TensorProto.INT8, [1, 1, 1, 1])]
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
