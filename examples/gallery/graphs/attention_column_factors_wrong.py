"""OpenVINO multiplies by other numbers where it fuses an attention with a factor for each column.

Needs numpy, onnx and openvino. The graph: q, k and the product q * k are quantized; the product times one factor for
each column goes through softmax, and times v. The expected numbers are those of ONNX's operators in float64.
"""

import sys

import numpy as np
import onnx
import openvino
from onnx import TensorProto, helper, numpy_helper

SCALES = {"q": 1 / 128, "k": 1 / 32, "p": 1 / 8}
Q, K, V, FACTORS = np.array([[64]]), np.array([[96, 32]]), np.array([[1.0], [0.0]]), np.array([0.5, -1.0])

constants = [numpy_helper.from_array(FACTORS.astype(np.float32), "factors")]
constants += [numpy_helper.from_array(np.float32(scale), f"{name}_scale") for name, scale in SCALES.items()]
constants.append(numpy_helper.from_array(np.int8(0), "zero"))
nodes = []


def quantize(name: str) -> None:
    nodes.append(helper.make_node("QuantizeLinear", [name, f"{name}_scale", "zero"], [f"{name}_codes"]))
    nodes.append(helper.make_node("DequantizeLinear", [f"{name}_codes", f"{name}_scale", "zero"], [f"{name}_real"]))


quantize("q")
quantize("k")
nodes.append(helper.make_node("MatMul", ["q_real", "k_real"], ["p"]))
quantize("p")
nodes.append(helper.make_node("Mul", ["p_real", "factors"], ["scaled"]))
nodes.append(helper.make_node("Softmax", ["scaled"], ["weights"], axis=1))
nodes.append(helper.make_node("MatMul", ["weights", "v"], ["y"]))
inputs = [
    helper.make_tensor_value_info(name, TensorProto.FLOAT, list(values.shape))
    for name, values in (("q", Q), ("k", K), ("v", V))
]
output = helper.make_tensor_value_info("y", TensorProto.FLOAT, [1, 1])
graph = helper.make_graph(nodes, "attention", inputs, [output], constants)
model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)
onnx.checker.check_model(model)

product = np.clip(np.rint(Q @ K * SCALES["q"] * SCALES["k"] / SCALES["p"]), -128, 127) * SCALES["p"]
exponentials = np.exp(product * FACTORS)
expected = (exponentials / exponentials.sum(1, keepdims=True)) @ V
config = {"INFERENCE_NUM_THREADS": 1, "INFERENCE_PRECISION_HINT": "f32"}
core = openvino.Core()
compiled = core.compile_model(core.read_model(model.SerializeToString(), b""), "CPU", config)
feeds = {"q": Q * SCALES["q"], "k": K * SCALES["k"], "v": V}
got = next(iter(compiled({name: values.astype(np.float32) for name, values in feeds.items()}).values()))
print(f"openvino {openvino.__version__}, onnx {onnx.__version__}, numpy {np.__version__}")
print("expected", expected.ravel().round(5).tolist())
print("got     ", got.ravel().round(5).tolist())
sys.exit(int(abs(expected - got).max() > 1e-4))
