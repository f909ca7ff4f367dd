"""float32_any_order: matmul_pair_sums_saturate

without VNNI OpenVINO adds the products of 8-bit codes in pairs in int16, which saturates (vpmaddubsw, signed codes
are shifted to unsigned ones first): a single product 127 * 127 in a pair gives 255. Weights of 7 bits do not saturate
Severity: wrong. Seen in openvino 2026.4.1.
Cause: vpmaddubsw adds two products in int16 with saturation.
Kernels that show it: on processors without onednn.avx_vnni, without onednn.avx512_vnni.
See also https://github.com/uxlfoundation/oneDNN/issues/476
Case: fully_connected(x: [1, 5], weight: [1, 5]) channels_first, data accumulator_limit, found by generated cases of
quantizer.
"""

import os
import sys

os.environ["ONEDNN_MAX_CPU_ISA"] = "AVX2"

import numpy as np
import onnx
import openvino
from onnx import TensorProto, helper, numpy_helper

x = np.full([1, 5], 127, np.int8)
s_x, z_x = 0.003921568859368563, -128
weight = np.full([1, 5], 127, np.int8)
s_weight, z_weight = np.array([0.007874015718698502]), np.array([0])
s_y, z_y = 8.635293960571289, 0

# Right: the value of the codes in integers and float64, rounded once.
sums = (x.astype(np.int64) - z_x) @ (weight.astype(np.int64)).T
real = sums * (s_x * s_weight)
steps = real / s_y
expected = np.clip(np.rint(steps) + z_y, -128, 127).astype(np.int64)

print(f"openvino {openvino.__version__}, onnx {onnx.__version__}, numpy {np.__version__}")
print("expected", expected.ravel().tolist(), flush=True)
nodes = [
    helper.make_node("DequantizeLinear", ["x", "x_scale", "x_zero"], ["n0"]),
    helper.make_node("DequantizeLinear", ["weight_codes", "weight_scale", "weight_zero"], ["n1"], axis=0),
    helper.make_node("Gemm", ["n0", "n1"], ["n2"], transB=1),
    helper.make_node("QuantizeLinear", ["n2", "y_scale", "y_zero"], ["n3"]),
]
constants = {
    "x_scale": np.array(0.003921569, np.float32),
    "x_zero": np.array(-128, np.int8),
    "weight_codes": x,
    "weight_scale": np.array([0.007874016], np.float32),
    "weight_zero": np.array([0], np.int8),
    "y_scale": np.array(8.635294, np.float32),
    "y_zero": np.array(0, np.int8),
}
inputs = [helper.make_tensor_value_info("x", TensorProto.INT8, [1, 5])]
outputs = [helper.make_tensor_value_info("n3", TensorProto.INT8, [1, 1])]
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
