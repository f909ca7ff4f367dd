"""ReverseSequence with a length of 0: the column stays as it is; ONNX Runtime 1.27 leaves its first element unwritten."""

import sys

import numpy as np
import onnx
import onnxruntime
from onnx import TensorProto, helper

x = np.arange(1, 13, dtype=np.float32).reshape(3, 4)
lengths = np.array([0, 1, 2, 3], np.int64)
expected = x.copy()
for column, length in enumerate(lengths):
    expected[:length, column] = x[:length, column][::-1]

node = helper.make_node("ReverseSequence", ["x", "lengths"], ["y"], batch_axis=1, time_axis=0)
graph = helper.make_graph(
    [node],
    "one",
    [
        helper.make_tensor_value_info("x", TensorProto.FLOAT, x.shape),
        helper.make_tensor_value_info("lengths", TensorProto.INT64, [4]),
    ],
    [helper.make_tensor_value_info("y", TensorProto.FLOAT, x.shape)],
)
model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=10).SerializeToString()
options = onnxruntime.SessionOptions()
options.intra_op_num_threads = 1
wrong = []
for _ in range(40):
    session = onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
    got = session.run(None, {"x": x, "lengths": lengths})[0]
    wrong += [got] * (not np.array_equal(got, expected))
print(f"onnxruntime {onnxruntime.__version__}, onnx {onnx.__version__}, numpy {np.__version__}")
print(f"expected: {expected.tolist()}")
print(f"got: {(wrong or [got])[0].tolist()}")
print("differs" if wrong else "agrees")
sys.exit(bool(wrong))
