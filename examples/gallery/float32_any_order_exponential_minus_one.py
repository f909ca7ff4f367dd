"""float32_any_order: exponential_minus_one

OpenVINO's Celu of small negative numbers has the error of exp(x) - 1 in float32, alpha * 1.1e-7, however small the
result is
Severity: off by one. Seen in openvino 2026.4.1.
Cause: alpha * (exp(x / alpha) - 1), where the difference cancels.
Case: celu(x: [17]) alpha=0.5 channels_first, data every_code, found by generated cases of quantizer.
"""

import sys

import numpy as np
import onnx
import openvino
from onnx import TensorProto, helper, numpy_helper

x = np.array([0, 0, 0, 0, 0, 0, 0, 0, -1, 0, 0, 0, 0, 0, 0, 0, 0], np.int8)
s_x, z_x = 0.007843137718737125, 0
s_y, z_y = 0.0117647061124444, 0

# Right: what the arithmetic declared for float32_any_order gives, restated in integers.
expected = np.array([0, 0, 0, 0, 0, 0, 0, 0, -1, 0, 0, 0, 0, 0, 0, 0, 0], np.int64)

print(f"openvino {openvino.__version__}, onnx {onnx.__version__}, numpy {np.__version__}")
print("expected", expected.ravel()[:16].tolist(), flush=True)
nodes = [
    helper.make_node("DequantizeLinear", ["x", "x_scale", "x_zero"], ["n0"]),
    helper.make_node("Celu", ["n0"], ["n1"], alpha=0.5),
    helper.make_node("QuantizeLinear", ["n1", "y_scale", "y_zero"], ["n2"]),
]
constants = {
    "x_scale": np.array(0.007843138, np.float32),
    "x_zero": np.array(0, np.int8),
    "y_scale": np.array(0.011764706, np.float32),
    "y_zero": np.array(0, np.int8),
}
inputs = [helper.make_tensor_value_info("x", TensorProto.INT8, [17])]
outputs = [helper.make_tensor_value_info("n2", TensorProto.INT8, [17])]
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
wrong = got != expected
at = np.flatnonzero(wrong)[:8]
print("at element ", at.tolist())
print("expected is", expected.ravel()[at].tolist())
print("got         ", got.ravel()[at].tolist())
print("differs" if wrong.any() else "agrees")
sys.exit(int(wrong.any()))
