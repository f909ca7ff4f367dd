"""tract's Gelu has the error of its erf, a polynomial: up to 8.5e-7

Severity: off by one. Seen in tract 0.23.9.
Case: gelu(x: [2, 37]) approximate=none channels_first, data every_code, found by generated cases of quantizer.
"""

import os
import sys
import tempfile

import numpy as np
import onnx
import tract
from onnx import TensorProto, helper, numpy_helper

x = np.array([[0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, -13,
    0, 0, 0], [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0,
    0, 0, 0]], np.int8)
s_x, z_x = 0.0313725508749485, 0
s_y, z_y = 0.016290785744786263, -118

# Right: what the arithmetic declared for float32_any_order gives, restated in integers.
expected = np.array([[-118, -118, -118, -118, -118, -118, -118, -118, -118, -118, -118, -118, -118, -118, -118, -118,
    -118, -118, -118, -118, -118, -118, -118, -118, -118, -118, -118, -118, -118, -118, -118, -118, -118, -127, -118,
    -118, -118], [-118, -118, -118, -118, -118, -118, -118, -118, -118, -118, -118, -118, -118, -118, -118, -118,
    -118, -118, -118, -118, -118, -118, -118, -118, -118, -118, -118, -118, -118, -118, -118, -118, -118, -118, -118,
    -118, -118]], np.int64)

print(f"tract {tract.version()}, onnx {onnx.__version__}, numpy {np.__version__}")
print("expected", expected.ravel()[:16].tolist(), flush=True)
nodes = [
    helper.make_node("DequantizeLinear", ["x", "x_scale", "x_zero"], ["n0"]),
    helper.make_node("Gelu", ["n0"], ["n1"], approximate='none'),
    helper.make_node("QuantizeLinear", ["n1", "y_scale", "y_zero"], ["n2"]),
]
constants = {
    "x_scale": np.array(0.03137255, np.float32),
    "x_zero": np.array(0, np.int8),
    "y_scale": np.array(0.016290786, np.float32),
    "y_zero": np.array(-118, np.int8),
}
inputs = [helper.make_tensor_value_info("x", TensorProto.INT8, [2, 37])]
outputs = [helper.make_tensor_value_info("n2", TensorProto.INT8, [2, 37])]
kept = [numpy_helper.from_array(np.array(values, order='C'), name) for name, values in constants.items()]
graph = helper.make_graph(nodes, "one", inputs, outputs, kept)
made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=8)
model = made.SerializeToString()
path = os.path.join(tempfile.mkdtemp(), "case.onnx")
onnx.save(made, path)
session = tract.onnx().load(path).into_model().into_runnable()
got = session.run([x])[0].to_numpy()
got = got.astype(np.int64)
assert got.shape == expected.shape, f"shape {got.shape}, right is {expected.shape}"
wrong = got != expected
at = np.flatnonzero(wrong)[:8]
print("at element ", at.tolist())
print("expected is", expected.ravel()[at].tolist())
print("got         ", got.ravel()[at].tolist())
print("differs" if wrong.any() else "agrees")
sys.exit(int(wrong.any()))
