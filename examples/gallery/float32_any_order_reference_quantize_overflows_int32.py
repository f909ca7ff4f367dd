"""float32_any_order: reference_quantize_overflows_int32

ONNX's reference evaluator converts the rounded number of a QuantizeLinear to int32 without saturation. From 2**31 on,
x86-64 gives the smallest integer, to which the zero point is added in 32 bits that wrap: -1.5e10 and a zero point of
-26 give 127, 1.5e10 gives -128
Severity: wrong. Seen in onnx_reference 1.21.0, 1.23.2.
Cause: numpy.rint(x).astype(numpy.int32) before the zero point and the clip (op_quantize_linear.py).
Case: quantize(x: [1]) channels_first, data random, found by generated cases of quantizer.
"""

import sys

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper
from onnx import version_converter
from onnx.reference import ReferenceEvaluator

x = np.array([-152039840.0], np.float32)
s_y, z_y = 0.009803921915590763, -26

# Right: the value of the codes in integers and float64, rounded once.
real = x.astype(np.float64)
steps = real / s_y
expected = np.clip(np.rint(steps) + z_y, -128, 127).astype(np.int64)

print(f"onnx {onnx.__version__}, numpy {np.__version__}")
print("expected", expected.ravel().tolist(), flush=True)
nodes = [
    helper.make_node("Identity", ["x"], ["n0"]),
    helper.make_node("QuantizeLinear", ["n0", "y_scale", "y_zero"], ["n1"]),
]
constants = {
    "y_scale": np.array(0.009803922, np.float32),
    "y_zero": np.array(-26, np.int8),
}
inputs = [helper.make_tensor_value_info("x", TensorProto.FLOAT, [1])]
outputs = [helper.make_tensor_value_info("n1", TensorProto.INT8, [1])]
kept = [numpy_helper.from_array(np.array(values, order='C'), name) for name, values in constants.items()]
graph = helper.make_graph(nodes, "one", inputs, outputs, kept)
made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8)
model = made.SerializeToString()
if made.opset_import[0].version < 21:
    made = version_converter.convert_version(made, 21)
got = ReferenceEvaluator(made).run(None, {"x": x})[0]
got = got.astype(np.int64)
assert got.shape == expected.shape, f"shape {got.shape}, right is {expected.shape}"
wrong = np.abs(got - np.clip(steps + z_y, -128, 127)) > 0.501
print("got     ", got.ravel().tolist())
print("differs" if wrong.any() else "agrees")
sys.exit(int(wrong.any()))
