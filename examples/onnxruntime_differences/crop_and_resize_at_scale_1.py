"""A linear Resize with tf_crop_and_resize: an axis whose scale is 1 is not cropped where another axis is resized."""

import sys

import numpy as np
import onnx
import onnxruntime
from onnx import TensorProto, helper, numpy_helper

x = np.arange(12, dtype=np.float32).reshape(1, 1, 3, 4) ** 2
constants = {"roi": [0, 0, 0, 0.25, 1, 1, 1, 0.75], "scales": [1, 1, 2, 1]}
attrs = {"mode": "linear", "coordinate_transformation_mode": "tf_crop_and_resize"}
graph = helper.make_graph(
    [helper.make_node("Resize", ["x", "roi", "scales"], ["y"], **attrs)],
    "one",
    [helper.make_tensor_value_info("x", TensorProto.FLOAT, x.shape)],
    [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
    [numpy_helper.from_array(np.array(v, np.float32), k) for k, v in constants.items()],
)
model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 19)], ir_version=10).SerializeToString()
got = onnxruntime.InferenceSession(model, providers=["CPUExecutionProvider"]).run(None, {"x": x})[0]
rows, columns = np.linspace(0, 2, 6), np.linspace(0.75, 2.25, 4)
between = np.stack([np.interp(columns, np.arange(4), row) for row in x[0, 0]])
expected = np.stack([np.interp(rows, np.arange(3), column) for column in between.T], axis=1)
print(f"onnxruntime {onnxruntime.__version__}, onnx {onnx.__version__}, numpy {np.__version__}")
print(f"expected: columns from 0.75 to 2.25, the first row {expected[0]}")
print(f"got: {got[0, 0, 0]}")
wrong = not np.allclose(got[0, 0], expected, rtol=1e-5)
print("differs" if wrong else "agrees")
sys.exit(wrong)
