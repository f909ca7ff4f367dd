"""float32_any_order: gather_elements_negative_axis_raises

ONNX's reference evaluator raises for a GatherElements along axis -1 if indices and operand have different sizes along
that axis
Severity: wrong. Seen in onnx_reference 1.21.0, 1.23.2.
Cause: shape[dim + 1 :] is the whole shape where dim is -1 (gather_numpy).
Case: gather_elements(x: [1], indices: [2]) axis=-1 channels_first, data zeros, found by generated cases of quantizer.
"""

import sys

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper
from onnx import version_converter
from onnx.reference import ReferenceEvaluator

x = np.array([11], np.int8)
s_x, z_x = 0.0087431063875556, 11
indices = np.full([2], 0, np.int64)
s_y, z_y = 0.0087431063875556, 11

# Right: what the arithmetic declared for float32_any_order gives, restated in integers.
expected = np.full([2], 11, np.int64)

print(f"onnx {onnx.__version__}, numpy {np.__version__}")
print("expected", expected.ravel().tolist(), flush=True)
nodes = [
    helper.make_node("DequantizeLinear", ["x", "x_scale", "x_zero"], ["n0"]),
    helper.make_node("GatherElements", ["n0", "indices"], ["n1"], axis=-1),
    helper.make_node("QuantizeLinear", ["n1", "y_scale", "y_zero"], ["n2"]),
]
constants = {
    "x_scale": np.array(0.008743106, np.float32),
    "x_zero": np.array(11, np.int8),
    "y_scale": np.array(0.008743106, np.float32),
    "y_zero": np.array(11, np.int8),
}
inputs = [helper.make_tensor_value_info("x", TensorProto.INT8, [1]), helper.make_tensor_value_info("indices", TensorProto.INT64, [2])]
outputs = [helper.make_tensor_value_info("n2", TensorProto.INT8, [2])]
kept = [numpy_helper.from_array(np.array(values, order='C'), name) for name, values in constants.items()]
graph = helper.make_graph(nodes, "one", inputs, outputs, kept)
made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8)
model = made.SerializeToString()
if made.opset_import[0].version < 21:
    made = version_converter.convert_version(made, 21)
got = ReferenceEvaluator(made).run(None, {"x": x, "indices": indices})[0]
got = got.astype(np.int64)
assert got.shape == expected.shape, f"shape {got.shape}, right is {expected.shape}"
wrong = got != expected
print("got     ", got.ravel().tolist())
print("differs" if wrong.any() else "agrees")
sys.exit(int(wrong.any()))
