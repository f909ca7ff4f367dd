"""GRU and LSTM of a batch without elements: the process ends by an assertion, where RNN returns a result without elements."""

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
print(list(session.run(None, {"x": numpy.zeros((3, 0, 2), numpy.float32)})[0].shape))
"""


def run(kind, gates):
    """Return the shape that a process of its own prints, or how it ended."""
    constants = {name: np.ones((1, 2 * gates, 2), np.float32) for name in ("w", "r")}
    graph = helper.make_graph(
        [helper.make_node(kind, ["x", "w", "r"], ["y"], hidden_size=2)],
        "one",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [3, None, 2])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
        [numpy_helper.from_array(v, k) for k, v in constants.items()],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model.onnx"
        onnx.save(model, path)
        done = subprocess.run([sys.executable, "-c", RUN, path], capture_output=True, text=True, check=False)  # noqa: S603
    return done.stdout.strip() if done.returncode == 0 else f"the process ended with {done.returncode}"


got = {kind: run(kind, gates) for kind, gates in (("RNN", 1), ("GRU", 3), ("LSTM", 4))}
expected = dict.fromkeys(got, "[3, 1, 0, 2]")
print(f"onnxruntime {onnxruntime.__version__}, onnx {onnx.__version__}, numpy {np.__version__}")
print(f"expected: {expected}")
print(f"got: {got}")
wrong = got != expected
print("differs" if wrong else "agrees")
sys.exit(wrong)
