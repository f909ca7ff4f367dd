"""float32_any_order: reference_log_softmax_underflows

ONNX's reference evaluator computes LogSoftmax as the logarithm of a float32 softmax: -99.98 instead of -100, and
minus infinity from -104 on
Severity: wrong. Seen in onnx_reference 1.21.0, 1.23.2.
Cause: LogSoftmax computes numpy.log of Softmax, which leaves float32's normal numbers at exp(-87).
Case: log_softmax(x: [2, 2]) axis=0 channels_first, data random, found by generated cases of quantizer.
"""

import sys

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper
from onnx import version_converter
from onnx.reference import ReferenceEvaluator

x = np.array([[0, 127], [0, -111]], np.int8)
s_x, z_x = 0.7843137383460999, 0
s_y, z_y = 0.7772050499916077, 127

# Right: what the arithmetic declared for float32_any_order gives, restated in integers.
expected = np.array([[126, 127], [126, -113]], np.int64)

print(f"onnx {onnx.__version__}, numpy {np.__version__}")
print("expected", expected.ravel().tolist(), flush=True)
nodes = [
    helper.make_node("DequantizeLinear", ["x", "x_scale", "x_zero"], ["n0"]),
    helper.make_node("LogSoftmax", ["n0"], ["n1"], axis=0),
    helper.make_node("QuantizeLinear", ["n1", "y_scale", "y_zero"], ["n2"]),
]
constants = {
    "x_scale": np.array(0.78431374, np.float32),
    "x_zero": np.array(0, np.int8),
    "y_scale": np.array(0.77720505, np.float32),
    "y_zero": np.array(127, np.int8),
}
inputs = [helper.make_tensor_value_info("x", TensorProto.INT8, [2, 2])]
outputs = [helper.make_tensor_value_info("n2", TensorProto.INT8, [2, 2])]
kept = [numpy_helper.from_array(np.array(values, order='C'), name) for name, values in constants.items()]
graph = helper.make_graph(nodes, "one", inputs, outputs, kept)
made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8)
model = made.SerializeToString()
if made.opset_import[0].version < 21:
    made = version_converter.convert_version(made, 21)
got = ReferenceEvaluator(made).run(None, {"x": x})[0]
got = got.astype(np.int64)
assert got.shape == expected.shape, f"shape {got.shape}, right is {expected.shape}"
wrong = got != expected
print("got     ", got.ravel().tolist())
print("differs" if wrong.any() else "agrees")
sys.exit(int(wrong.any()))
