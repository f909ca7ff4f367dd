"""ort: int16_pair_sums_saturate

without VNNI MLAS adds the products of raw codes and weights in pairs in int16, which saturates (vpmaddubsw); weights
of 7 bits, or session.x64quantprecision, do not saturate
Severity: wrong. Seen in onnxruntime 1.31.1, 1.32.0.
Cause: vpmaddubsw adds two products in int16 with saturation (MLAS, QgemmU8X8KernelAvx2).
Kernels that show it: on processors without avx_vnni, without avx512_vnni.
See also https://github.com/microsoft/onnxruntime/issues/16105
See also https://github.com/microsoft/onnxruntime/issues/6004
Case: conv2d(x: [1, 4, 1, 1], weight: [1, 4, 1, 1]) dilation=[1, 1] groups=1 padding=[0, 0, 0, 0] stride=[1, 1]
channels_first, data zeros, found by generated cases of quantizer.
"""

import sys

import numpy as np
import onnx
import onnxruntime
from onnx import TensorProto, helper, numpy_helper

x = np.full([1, 4, 1, 1], 227, np.uint8)
s_x, z_x = 0.012712545692920685, 227
weight = np.array([[[[0]], [[0]], [[-51]], [[-127]]]], np.int8)
s_weight, z_weight = np.array([0.000520961475558579]), np.array([0])
s_y, z_y = 0.004905881825834513, 144

# Right: the value of the codes in integers and float64, rounded once.
X, W = x.astype(np.int64) - z_x, weight.astype(np.int64)
sums = np.einsum("ncyx,kcij->nkyx", X, W)
real = sums * (s_x * s_weight.reshape([1, -1, 1, 1]))
steps = real / s_y
expected = np.clip(np.rint(steps) + z_y, 0, 255).astype(np.int64)

print(f"onnxruntime {onnxruntime.__version__}, onnx {onnx.__version__}, numpy {np.__version__}")
print("expected", expected.ravel().tolist(), flush=True)
nodes = [
    helper.make_node("QLinearConv", ["x", "x_scale", "x_zero", "weight", "weight_scale", "weight_zero", "y_scale", "y_zero"], ["n0"], dilations=[1, 1], group=1, pads=[0, 0, 0, 0], strides=[1, 1]),
]
constants = {
    "x_scale": np.array(0.012712546, np.float32),
    "x_zero": np.array(227, np.uint8),
    "weight_scale": np.array([0.0005209615], np.float32),
    "weight_zero": np.array([0], np.int8),
    "weight": weight,
    "y_scale": np.array(0.004905882, np.float32),
    "y_zero": np.array(144, np.uint8),
}
inputs = [helper.make_tensor_value_info("x", TensorProto.UINT8, [1, 4, 1, 1])]
outputs = [onnx.ValueInfoProto(name="n0")]
kept = [numpy_helper.from_array(np.array(values, order='C'), name) for name, values in constants.items()]
graph = helper.make_graph(nodes, "one", inputs, outputs, kept)
made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13), helper.make_opsetid("com.microsoft", 1)], ir_version=8)
model = made.SerializeToString()
options = onnxruntime.SessionOptions()
options.intra_op_num_threads = 1
options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
session = onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
got = session.run(None, {"x": x})[0]
got = got.astype(np.int64)
assert got.shape == expected.shape, f"shape {got.shape}, right is {expected.shape}"
wrong = np.abs(got - np.clip(steps + z_y, 0, 255)) > 0.501
print("got     ", got.ravel().tolist())
print("differs" if wrong.any() else "agrees")
sys.exit(int(wrong.any()))
