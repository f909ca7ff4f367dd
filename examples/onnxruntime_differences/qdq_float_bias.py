"""A QDQ ConvTranspose with a float bias: with optimizations the bias becomes int32 in units of s_x * s_w, and leaves that type."""

import sys

import numpy as np
import onnx
import onnxruntime
from onnx import TensorProto, helper, numpy_helper

x = np.array([62000, 62140, 62500, 60000], np.uint16).reshape(4, 1, 1, 1)
w = np.array([-3797, 7437, -15823], np.int16).reshape(1, 3, 1, 1)
b = np.array([1.7, 0.75, -0.022], np.float32)
s_x, z_x, s_w, s_y, z_y = 2.0**-19, 62140, 2.0**-15, 2.0**-14, -32311
sums = (x.astype(np.int64) - z_x) * w.astype(np.int64)
real = sums * s_x * s_w + b.astype(np.float64).reshape(1, 3, 1, 1)
expected = np.clip(np.rint(real / s_y) + z_y, -(2**15), 2**15 - 1).astype(np.int64)

constants = {
    "s_x": np.float32(s_x),
    "z_x": np.uint16(z_x),
    "s_w": np.float32(s_w),
    "z_w": np.int16(0),
    "s_y": np.float32(s_y),
    "z_y": np.int16(z_y),
    "w": w,
    "b": b,
}
nodes = [
    helper.make_node("DequantizeLinear", ["x", "s_x", "z_x"], ["xf"]),
    helper.make_node("DequantizeLinear", ["w", "s_w", "z_w"], ["wf"]),
    helper.make_node("ConvTranspose", ["xf", "wf", "b"], ["yf"]),
    helper.make_node("QuantizeLinear", ["yf", "s_y", "z_y"], ["y"]),
]
graph = helper.make_graph(
    nodes,
    "one",
    [helper.make_tensor_value_info("x", TensorProto.UINT16, x.shape)],
    [helper.make_tensor_value_info("y", TensorProto.INT16, [4, 3, 1, 1])],
    [numpy_helper.from_array(np.array(v), k) for k, v in constants.items()],
)
model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10).SerializeToString()
got = {}
for level in ("ORT_DISABLE_ALL", "ORT_ENABLE_ALL"):
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    options.graph_optimization_level = getattr(onnxruntime.GraphOptimizationLevel, level)
    session = onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
    got[level] = session.run(None, {"x": x})[0].astype(np.int64)
print(f"onnxruntime {onnxruntime.__version__}, onnx {onnx.__version__}, numpy {np.__version__}")
print(f"expected: {expected.reshape(4, 3).tolist()}, as far as a tie decides")
for level, codes in got.items():
    print(f"got: {level} {codes.reshape(4, 3).tolist()}")
wrong = bool(any(np.abs(codes - expected).max() > 1 for codes in got.values()))
print("differs" if wrong else "agrees")
sys.exit(wrong)
