"""MatMulInteger and QLinearMatMul of K = 0: a sum without terms is 0, ONNX Runtime returns memory that nothing wrote."""

import sys

import numpy as np
import onnx
import onnxruntime
from onnx import TensorProto, helper, numpy_helper

options = onnxruntime.SessionOptions()
options.intra_op_num_threads = 1


def run(node, outputs, constants, **feeds):
    """Return the output of a model of one node."""
    inputs = [
        helper.make_tensor_value_info(k, helper.np_dtype_to_tensor_dtype(v.dtype), v.shape) for k, v in feeds.items()
    ]
    held = [numpy_helper.from_array(values, name) for name, values in constants.items()]
    graph = helper.make_graph([node], "one", inputs, [helper.make_tensor_value_info("y", outputs, None)], held)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=10)
    session = onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    return session.run(None, feeds)[0]


a, b = np.zeros((2, 0), np.uint8), np.zeros((0, 3), np.uint8)
used = {"a": np.full((64, 64), 200, np.uint8), "b": np.full((64, 64), 200, np.uint8)}
integer = helper.make_node("MatMulInteger", ["a", "b"], ["y"])
linear = helper.make_node("QLinearMatMul", ["a", "s", "z", "b", "s", "z", "s", "z"], ["y"])
grids = {"s": np.array(1, np.float32), "z": np.array(7, np.uint8)}
wrong = []
for _ in range(40):
    run(integer, TensorProto.INT32, {}, **used)  # leaves numbers in the memory that comes next
    sums, codes = run(integer, TensorProto.INT32, {}, a=a, b=b), run(linear, TensorProto.UINT8, grids, a=a, b=b)
    wrong += [("MatMulInteger", sums)] * bool(sums.any()) + [("QLinearMatMul", codes)] * bool((codes != 7).any())
print(f"onnxruntime {onnxruntime.__version__}, onnx {onnx.__version__}, numpy {np.__version__}")
print("expected: MatMulInteger 0 everywhere, QLinearMatMul the zero point 7 everywhere")
for name, got in dict(wrong).items():
    print(f"got: {name} {got.tolist()}")
print("differs" if wrong else "agrees")
sys.exit(bool(wrong))
