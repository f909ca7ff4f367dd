"""A Loop that transposes a dequantized and transposed tensor around it: with optimizations, ONNX Runtime ends the process."""

import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
from onnx import TensorProto, helper, numpy_helper

RUN = """
import sys, numpy, onnxruntime
session = onnxruntime.InferenceSession(sys.argv[1], providers=["CPUExecutionProvider"])
print(session.run(None, {"x": numpy.arange(6, dtype=numpy.float32).reshape(2, 3)})[0].tolist())
"""

value = helper.make_tensor_value_info
body = helper.make_graph(
    [helper.make_node("Identity", ["going"], ["still"]), helper.make_node("Transpose", ["t"], ["u"], perm=[1, 0])],
    "body",
    [value("round", TensorProto.INT64, []), value("going", TensorProto.BOOL, [])],
    [value("still", TensorProto.BOOL, []), value("u", TensorProto.FLOAT, None)],
)
nodes = [
    helper.make_node("QuantizeLinear", ["x", "scale", "zero"], ["q"]),
    helper.make_node("DequantizeLinear", ["q", "scale", "zero"], ["f"]),
    helper.make_node("Transpose", ["f"], ["t"], perm=[1, 0]),
    helper.make_node("Loop", ["once", "yes"], ["y"], body=body),
]
constants = {"scale": np.float32(0.5), "zero": np.uint8(0), "once": np.array(1), "yes": np.ones((), bool)}
graph = helper.make_graph(
    nodes,
    "loop",
    [value("x", TensorProto.FLOAT, [2, 3])],
    [value("y", TensorProto.FLOAT, None)],
    [numpy_helper.from_array(np.asarray(held), name) for name, held in constants.items()],
)
model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
expected = np.arange(6.0).reshape(1, 2, 3).tolist()
with tempfile.TemporaryDirectory() as folder:
    path = Path(folder) / "model.onnx"
    onnx.save(model, path)
    done = subprocess.run([sys.executable, "-c", RUN, str(path)], capture_output=True, text=True, check=False)  # noqa: S603
got = done.stdout.strip() if done.returncode == 0 else f"the process ended with {done.returncode}"
print(f"onnxruntime {onnxruntime.__version__}, onnx {onnx.__version__}, numpy {np.__version__}")
print(f"expected: {expected}")
print(f"got: {got}")
wrong = got != str(expected)
print("differs" if wrong else "agrees")
sys.exit(wrong)
