"""float32_any_order: log_softmax_evaluated_as_table

tract computes a LogSoftmax between DequantizeLinear and QuantizeLinear over all 256 codes: -33.3 for an axis of one
element, whose LogSoftmax is 0
Severity: wrong. Seen in tract 0.23.9.
Cause: an operator whose result has the shape of its operand is computed once for a vector of all 256 codes, and
becomes a table (declutter of DequantizeLinearF32); softmax and pad are not functions of one element.
Case: log_softmax(x: [1]) axis=0 channels_first, data random, found by generated cases of quantizer.
"""

import os
import sys
import tempfile

import numpy as np
import onnx
import tract
from onnx import TensorProto, helper, numpy_helper

x = np.array([0], np.int8)
s_x, z_x = 0.250980406999588, 0
s_y, z_y = 0.22185178101062775, 127

# Right: what the arithmetic declared for float32_any_order gives, restated in integers.
expected = np.array([127], np.int64)

print(f"tract {tract.version()}, onnx {onnx.__version__}, numpy {np.__version__}")
print("expected", expected.ravel().tolist(), flush=True)
nodes = [
    helper.make_node("DequantizeLinear", ["x", "x_scale", "x_zero"], ["n0"]),
    helper.make_node("LogSoftmax", ["n0"], ["n1"], axis=0),
    helper.make_node("QuantizeLinear", ["n1", "y_scale", "y_zero"], ["n2"]),
]
constants = {
    "x_scale": np.array(0.2509804, np.float32),
    "x_zero": np.array(0, np.int8),
    "y_scale": np.array(0.22185178, np.float32),
    "y_zero": np.array(127, np.int8),
}
inputs = [helper.make_tensor_value_info("x", TensorProto.INT8, [1])]
outputs = [helper.make_tensor_value_info("n2", TensorProto.INT8, [1])]
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
print("got     ", got.ravel().tolist())
print("differs" if wrong.any() else "agrees")
sys.exit(int(wrong.any()))
