"""Resize with align_corners or pytorch_half_pixel by a scale that gives a fractional length: whose length counts."""

import sys

import numpy as np
import onnx
import onnxruntime
from onnx import TensorProto, helper, numpy_helper

print(f"onnxruntime {onnxruntime.__version__}, onnx {onnx.__version__}, numpy {np.__version__}")
x = np.arange(5, dtype=np.float32).reshape(1, 1, 1, 5)
# The standard's node tests take the length before it is cut to an integer: 5 * 0.7 = 3.5, and 5 * 0.3 = 1.5.
CASES = (
    ("align_corners", 0.7, [place * 4 / (5 * 0.7 - 1) for place in range(3)]),
    ("pytorch_half_pixel", 0.3, [0.5 / 0.3 - 0.5]),
)
wrong = False
for mode, scale, expected in CASES:
    graph = helper.make_graph(
        [helper.make_node("Resize", ["x", "", "scales"], ["y"], mode="linear", coordinate_transformation_mode=mode)],
        "one",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, x.shape)],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
        [numpy_helper.from_array(np.array([1, 1, 1, scale], np.float32), "scales")],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 19)], ir_version=10).SerializeToString()
    got = onnxruntime.InferenceSession(model, providers=["CPUExecutionProvider"]).run(None, {"x": x})[0].ravel()
    print(f"{mode} by {scale}: expected {np.array(expected)}, got {got}")
    wrong |= not np.allclose(got, expected, rtol=1e-5)
print("differs" if wrong else "agrees")
sys.exit(wrong)
