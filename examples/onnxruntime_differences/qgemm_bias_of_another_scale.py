"""A QDQ Gemm whose int32 bias is dequantized by another scale than s_x * s_w: with optimizations the bias counts by s_x * s_w."""

import sys

import numpy as np
import onnx
import onnxruntime
from onnx import TensorProto, helper, numpy_helper

x = (np.arange(16, dtype=np.int64).reshape(2, 8) * 37 % 251).astype(np.uint8)
w = (np.arange(24, dtype=np.int64).reshape(8, 3) * 53 % 251 - 125).astype(np.int8)
b, s_x, s_w, s_b, s_y, z = np.array([1000, -2000, 300], np.int32), 0.02, 0.01, 0.0008, 0.05, 128
sums = (x.astype(np.int64) - z) @ w.astype(np.int64)
real = sums * s_x * s_w + b.astype(np.int64) * s_b
expected = np.clip(np.rint(real / s_y) + z, 0, 255).astype(np.int64)

constants = {
    "s_x": np.float32(s_x),
    "s_w": np.float32(s_w),
    "s_b": np.float32(s_b),
    "s_y": np.float32(s_y),
    "z": np.uint8(z),
    "z_w": np.int8(0),
    "w": w,
    "b": b,
}
nodes = [
    helper.make_node("DequantizeLinear", ["x", "s_x", "z"], ["xf"]),
    helper.make_node("DequantizeLinear", ["w", "s_w", "z_w"], ["wf"]),
    helper.make_node("DequantizeLinear", ["b", "s_b"], ["bf"]),
    helper.make_node("Gemm", ["xf", "wf", "bf"], ["yf"]),
    helper.make_node("QuantizeLinear", ["yf", "s_y", "z"], ["y"]),
]
graph = helper.make_graph(
    nodes,
    "one",
    [helper.make_tensor_value_info("x", TensorProto.UINT8, x.shape)],
    [helper.make_tensor_value_info("y", TensorProto.UINT8, [2, 3])],
    [numpy_helper.from_array(np.array(v), k) for k, v in constants.items()],
)
model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=10).SerializeToString()
got = {}
for level in ("ORT_DISABLE_ALL", "ORT_ENABLE_ALL"):
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    options.graph_optimization_level = getattr(onnxruntime.GraphOptimizationLevel, level)
    session = onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
    got[level] = session.run(None, {"x": x})[0].astype(np.int64)
print(f"onnxruntime {onnxruntime.__version__}, onnx {onnx.__version__}, numpy {np.__version__}")
print(f"expected: {expected.tolist()}, as far as a tie decides")
for level, codes in got.items():
    print(f"got: {level} {codes.tolist()}")
wrong = any(np.abs(codes - expected).max() > 1 for codes in got.values())
print("differs" if wrong else "agrees")
sys.exit(wrong)
