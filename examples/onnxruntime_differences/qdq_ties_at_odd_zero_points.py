"""A QDQ Add and Mul with an odd zero point: with optimizations ties are rounded after the zero point is added, not before."""

import sys

import numpy as np
import onnx
import onnxruntime
from onnx import TensorProto, helper, numpy_helper

a = np.arange(24, dtype=np.uint8).reshape(2, 12)
b = (a.astype(np.int64) * 10 % 25).astype(np.uint8)
constants = {"s": np.float32(0.25), "z": np.uint8(3), "t": np.float32(0.5), "o": np.uint8(67)}


def quantized(real):
    """Return codes as QuantizeLinear has them: rounded half to even, then the zero point is added."""
    return np.clip(np.rint(real / 0.5) + 67, 0, 255).astype(np.int64)


def run(op, level):
    """Return the codes of ONNX Runtime with the optimizations of *level*."""
    nodes = [
        helper.make_node("DequantizeLinear", ["a", "s", "z"], ["af"]),
        helper.make_node("DequantizeLinear", ["b", "s", "z"], ["bf"]),
        helper.make_node(op, ["af", "bf"], ["yf"]),
        helper.make_node("QuantizeLinear", ["yf", "t", "o"], ["y"]),
    ]
    graph = helper.make_graph(
        nodes,
        "one",
        [helper.make_tensor_value_info(name, TensorProto.UINT8, a.shape) for name in "ab"],
        [helper.make_tensor_value_info("y", TensorProto.UINT8, a.shape)],
        [numpy_helper.from_array(np.array(v), k) for k, v in constants.items()],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=10).SerializeToString()
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    options.graph_optimization_level = getattr(onnxruntime.GraphOptimizationLevel, level)
    session = onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
    return session.run(None, {"a": a, "b": b})[0].astype(np.int64)


print(f"onnxruntime {onnxruntime.__version__}, onnx {onnx.__version__}, numpy {np.__version__}")
left, right = ((x.astype(np.float64) - 3) * 0.25 for x in (a, b))
wrong = False
for op, real in (("Add", left + right), ("Mul", left * right)):
    expected = quantized(real)
    print(f"expected: {op} {expected[0].tolist()}")
    for level in ("ORT_DISABLE_ALL", "ORT_ENABLE_ALL"):
        codes = run(op, level)
        print(f"got: {op} {level} {codes[0].tolist()}")
        wrong |= not np.array_equal(codes, expected)
print("differs" if wrong else "agrees")
sys.exit(wrong)
