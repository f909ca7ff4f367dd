"""float32_any_order: zero_point_added_before_rounding

OpenVINO folds DequantizeLinear and QuantizeLinear into a * x + b in float32 and rounds the sum. ONNX rounds first and
then adds the zero point: -24.49998 with the zero point 75 is code 51, and OpenVINO gives code 50. A tie at an odd
zero point is one code off: 0.5 with the zero point 3 is code 3, and OpenVINO gives code 4
Severity: design. Seen in openvino 2026.4.1.
Cause: DequantizeLinear and QuantizeLinear become one linear function in float32, which starts at the lowest code.
Case: concat(a: [2, 4, 3, 4], b: [2, 4, 3, 1]) axis=-1 channels_first, data random, found by generated cases of
quantizer.
"""

import sys

import numpy as np
import onnx
import openvino
from onnx import TensorProto, helper, numpy_helper

a = np.array([[[[123, 123, 123, 123], [123, 123, 123, 123], [123, 123, 123, 123]], [[123, 123, 123, 123], [123, 123,
    123, 123], [123, 123, 123, -82]], [[123, 123, 123, 123], [123, 123, 123, 123], [123, 123, 123, 123]], [[123, 123,
    123, 123], [123, 123, 123, 123], [123, 123, 123, 123]]], [[[123, 123, 123, 123], [123, 123, 123, 123], [123, 123,
    123, 123]], [[123, 123, 123, 123], [123, 123, 123, 123], [123, 123, 123, 123]], [[123, 123, 123, 123], [123, 123,
    123, 123], [123, 123, 123, 123]], [[123, 123, 123, 123], [123, 123, 123, 123], [123, 123, 123, 123]]]], np.int8)
s_a, z_a = 0.0008548512123525143, 123
b = np.full([2, 4, 3, 1], 75, np.int8)
s_b, z_b = 0.007152841426432133, 75
s_y, z_y = 0.007152841426432133, 75

# Right: the value of the codes in integers and float64, rounded once.
A = s_a * (a.astype(np.int64) - z_a)
B = s_b * (b.astype(np.int64) - z_b)
real = np.concatenate([A, B], -1)
steps = real / s_y
expected = np.clip(np.rint(steps) + z_y, -128, 127).astype(np.int64)

print(f"openvino {openvino.__version__}, onnx {onnx.__version__}, numpy {np.__version__}")
print("expected", expected.ravel()[:16].tolist(), flush=True)
nodes = [
    helper.make_node("DequantizeLinear", ["a", "a_scale", "a_zero"], ["n0"]),
    helper.make_node("DequantizeLinear", ["b", "b_scale", "b_zero"], ["n1"]),
    helper.make_node("Concat", ["n0", "n1"], ["n2"], axis=-1),
    helper.make_node("QuantizeLinear", ["n2", "y_scale", "y_zero"], ["n3"]),
]
constants = {
    "a_scale": np.array(0.0008548512, np.float32),
    "a_zero": np.array(123, np.int8),
    "b_scale": np.array(0.0071528414, np.float32),
    "b_zero": np.array(75, np.int8),
    "y_scale": np.array(0.0071528414, np.float32),
    "y_zero": np.array(75, np.int8),
}
inputs = [helper.make_tensor_value_info("a", TensorProto.INT8, [2, 4, 3, 4]), helper.make_tensor_value_info("b", TensorProto.INT8, [2, 4, 3, 1])]
outputs = [helper.make_tensor_value_info("n3", TensorProto.INT8, [2, 4, 3, 5])]
kept = [numpy_helper.from_array(np.array(values, order='C'), name) for name, values in constants.items()]
graph = helper.make_graph(nodes, "one", inputs, outputs, kept)
made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8)
model = made.SerializeToString()
core = openvino.Core()
config = {"INFERENCE_NUM_THREADS": 1, "INFERENCE_PRECISION_HINT": "f32"}
compiled = core.compile_model(core.read_model(model, b""), "CPU", config)
got = next(iter(compiled({"a": a, "b": b}).values()))
got = got.astype(np.int64)
assert got.shape == expected.shape, f"shape {got.shape}, right is {expected.shape}"
wrong = got != expected
at = np.flatnonzero(wrong)[:8]
print("at element ", at.tolist())
print("expected is", expected.ravel()[at].tolist())
print("got         ", got.ravel()[at].tolist())
print("differs" if wrong.any() else "agrees")
sys.exit(int(wrong.any()))
