"""float32_any_order: selu_alpha_0_ignored

OpenVINO treats Selu's alpha of 0 as the default, 1.67326: negative inputs give down to -1.67 times gamma, not 0
Severity: wrong. Seen in openvino 2026.4.1.
Case: selu(x: [1]) alpha=0.0 gamma=1.690625 channels_first, data one_hot, found by generated cases of quantizer.
"""

import sys

import numpy as np
import onnx
import openvino
from onnx import TensorProto, helper, numpy_helper

x = np.array([-128], np.int8)
s_x, z_x = 0.027975643053650856, 87
s_y, z_y = 1.0, 0

# Right: what the arithmetic declared for float32_any_order gives, restated in integers.
expected = np.array([0], np.int64)

print(f"openvino {openvino.__version__}, onnx {onnx.__version__}, numpy {np.__version__}")
print("expected", expected.ravel().tolist(), flush=True)
nodes = [
    helper.make_node("DequantizeLinear", ["x", "x_scale", "x_zero"], ["n0"]),
    helper.make_node("Selu", ["n0"], ["n1"], alpha=0.0, gamma=1.6906249523162842),
    helper.make_node("QuantizeLinear", ["n1", "y_scale", "y_zero"], ["n2"]),
]
constants = {
    "x_scale": np.array(0.027975643, np.float32),
    "x_zero": np.array(87, np.int8),
    "y_scale": np.array(1.0, np.float32),
    "y_zero": np.array(0, np.int8),
}
inputs = [helper.make_tensor_value_info("x", TensorProto.INT8, [1])]
outputs = [helper.make_tensor_value_info("n2", TensorProto.INT8, [1])]
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
print("got     ", got.ravel().tolist())
print("differs" if wrong.any() else "agrees")
sys.exit(int(wrong.any()))
