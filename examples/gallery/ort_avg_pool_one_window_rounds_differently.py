"""ort: avg_pool_one_window_rounds_differently

a window that is a whole image goes to the global kernel, which multiplies the sum once and adds the zero point after
rounding, where the windowed one adds it before; a tile of one window is such an image
Severity: design. Seen in onnxruntime.
Case: avg_pool2d(x: [1, 1, 1, 2]) ceil_mode=False count_include_pad=False kernel=[1, 1] padding=[0, 0, 0, 0]
stride=[1, 1] channels_first tiles=ow1, data ties, found by generated cases of quantizer.
"""

import sys

import numpy as np
import onnx
import onnxruntime
from onnx import TensorProto, helper, numpy_helper

x = np.array([[[[151, 202]]]], np.uint8)
s_x, z_x = 1.0, 202
s_y, z_y = 2.0, 131

# Right: the same numbers computed in parts (ow 1): neither order is wrong alone.
expected = np.array([[[[105, 131]]]], np.int64)

print(f"onnxruntime {onnxruntime.__version__}, onnx {onnx.__version__}, numpy {np.__version__}")
print("expected", expected.ravel().tolist(), flush=True)
nodes = [
    helper.make_node("QLinearAveragePool", ["x", "x_scale", "x_zero", "y_scale", "y_zero"], ["n0"], domain="com.microsoft", ceil_mode=0, count_include_pad=0, kernel_shape=[1, 1], pads=[0, 0, 0, 0], strides=[1, 1]),
]
constants = {
    "x_scale": np.array(1.0, np.float32),
    "x_zero": np.array(202, np.uint8),
    "y_scale": np.array(2.0, np.float32),
    "y_zero": np.array(131, np.uint8),
}
inputs = [helper.make_tensor_value_info("x", TensorProto.UINT8, [1, 1, 1, 2])]
outputs = [onnx.ValueInfoProto(name="n0")]
kept = [numpy_helper.from_array(np.array(values, order='C'), name) for name, values in constants.items()]
graph = helper.make_graph(nodes, "one", inputs, outputs, kept)
made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13), helper.make_opsetid("com.microsoft", 1)], ir_version=8)
model = made.SerializeToString()
options = onnxruntime.SessionOptions()
options.intra_op_num_threads = 1
options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
session = onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
got = session.run(None, {"x": x})[0]
got = got.astype(np.int64)
assert got.shape == expected.shape, f"shape {got.shape}, right is {expected.shape}"
wrong = got != expected
print("got     ", got.ravel().tolist())
print("differs" if wrong.any() else "agrees")
sys.exit(int(wrong.any()))
