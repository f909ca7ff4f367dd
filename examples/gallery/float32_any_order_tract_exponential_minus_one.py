"""float32_any_order: tract_exponential_minus_one

tract's Celu of small negative numbers has the error of exp(x) - 1 in float32, 5.6e-8, however small the result is
Severity: off by one. Seen in tract 0.23.9.
Cause: exp(x / alpha) - 1, where the difference cancels.
Case: celu(x: [4, 5]) alpha=1.0 channels_first, data random, found by generated cases of quantizer.
"""

import os
import sys
import tempfile

import numpy as np
import onnx
import tract
from onnx import TensorProto, helper, numpy_helper

x = np.full([4, 5], -128, np.int8)
s_x, z_x = 0.023560049012303352, -128
s_y, z_y = 0.023540548980236053, -128

# Right: what the arithmetic declared for float32_any_order gives, restated in integers.
expected = np.full([4, 5], -128, np.int64)

print(f"tract {tract.version()}, onnx {onnx.__version__}, numpy {np.__version__}")
print("expected", expected.ravel()[:16].tolist(), flush=True)
nodes = [
    helper.make_node("DequantizeLinear", ["x", "x_scale", "x_zero"], ["n0"]),
    helper.make_node("Celu", ["n0"], ["n1"], alpha=1.0),
    helper.make_node("QuantizeLinear", ["n1", "y_scale", "y_zero"], ["n2"]),
]
constants = {
    "x_scale": np.array(0.023560049, np.float32),
    "x_zero": np.array(-128, np.int8),
    "y_scale": np.array(0.023540549, np.float32),
    "y_zero": np.array(-128, np.int8),
}
inputs = [helper.make_tensor_value_info("x", TensorProto.INT8, [4, 5])]
outputs = [helper.make_tensor_value_info("n2", TensorProto.INT8, [4, 5])]
kept = [numpy_helper.from_array(np.array(values, order='C'), name) for name, values in constants.items()]
graph = helper.make_graph(nodes, "one", inputs, outputs, kept)
made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8)
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
