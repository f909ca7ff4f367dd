"""float32_any_order: pad_value_used_as_code

OpenVINO truncates the padding value to a whole number, -0.55 to 0; if all padded axes have one element, it pads with
that number as a code, whatever scale and zero point are
Severity: wrong. Seen in openvino 2026.4.1.
Case: pad(x: [1]) padding=[0, 1] value=-0.5453125000000001 channels_first, data zeros, found by generated cases of
quantizer.
"""

import sys

import numpy as np
import onnx
import openvino
from onnx import TensorProto, helper, numpy_helper

x = np.array([47], np.int8)
s_x, z_x = 0.014543121680617332, 47
s_y, z_y = 0.014543121680617332, 47

# Right: what the arithmetic declared for float32_any_order gives, restated in integers.
expected = np.array([47, 10], np.int64)

print(f"openvino {openvino.__version__}, onnx {onnx.__version__}, numpy {np.__version__}")
print("expected", expected.ravel().tolist(), flush=True)
nodes = [
    helper.make_node("DequantizeLinear", ["x", "x_scale", "x_zero"], ["n0"]),
    helper.make_node("Pad", ["n0", "pads", "value"], ["n1"]),
    helper.make_node("QuantizeLinear", ["n1", "y_scale", "y_zero"], ["n2"]),
]
constants = {
    "x_scale": np.array(0.014543122, np.float32),
    "x_zero": np.array(47, np.int8),
    "pads": np.array([0, 1], np.int64),
    "value": np.array(-0.5453125, np.float32),
    "y_scale": np.array(0.014543122, np.float32),
    "y_zero": np.array(47, np.int8),
}
inputs = [helper.make_tensor_value_info("x", TensorProto.INT8, [1])]
outputs = [helper.make_tensor_value_info("n2", TensorProto.INT8, [2])]
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
