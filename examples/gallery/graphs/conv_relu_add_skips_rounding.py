"""OpenVINO does not round the codes between a convolution and the sum behind it, if the sum is quantized too.

Needs numpy, onnx and openvino. The graph: x and z are quantized, x * w -> codes -> + z -> codes. The expected codes are
those of ONNX's operators in float64, each after the other; all of them are far from a tie.
"""

import sys

import numpy as np
import onnx
import openvino
from onnx import TensorProto, helper, numpy_helper

SCALES = {"x": 1 / 128, "w": 1 / 64, "c": 1 / 32, "z": 1 / 128, "s": 3 / 64}
X, W, Z = np.array([90, -77, 33, 100]), 60, np.array([0, 0, 0, 0])

nodes, constants = [], [numpy_helper.from_array(np.full((1, 1, 1, 1), W, np.int8), "w_codes")]
for name, scale in SCALES.items():
    constants += [numpy_helper.from_array(np.float32(scale), f"{name}_scale")]
constants.append(numpy_helper.from_array(np.int8(0), "zero"))


def quantize(name: str) -> None:
    nodes.append(helper.make_node("QuantizeLinear", [name, f"{name}_scale", "zero"], [f"{name}_codes"]))


def dequantize(name: str) -> None:
    nodes.append(helper.make_node("DequantizeLinear", [f"{name}_codes", f"{name}_scale", "zero"], [f"{name}_real"]))


for name in ("x", "z"):
    quantize(name)
for name in ("x", "z", "w"):
    dequantize(name)
nodes.append(helper.make_node("Conv", ["x_real", "w_real"], ["c"]))
quantize("c")
dequantize("c")
nodes.append(helper.make_node("Add", ["c_real", "z_real"], ["s"]))
quantize("s")
inputs = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [1, 1, 1, 4]) for name in ("x", "z")]
output = helper.make_tensor_value_info("s_codes", TensorProto.INT8, [1, 1, 1, 4])
graph = helper.make_graph(nodes, "sum", inputs, [output], constants)
model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)
onnx.checker.check_model(model)

first = np.rint(X * SCALES["x"] * W * SCALES["w"] / SCALES["c"])
expected = np.rint((first * SCALES["c"] + Z * SCALES["z"]) / SCALES["s"]).astype(int)
config = {"INFERENCE_NUM_THREADS": 1, "INFERENCE_PRECISION_HINT": "f32"}
core = openvino.Core()
compiled = core.compile_model(core.read_model(model.SerializeToString(), b""), "CPU", config)
feeds = {
    name: (codes * SCALES[name]).astype(np.float32).reshape(1, 1, 1, 4) for name, codes in (("x", X), ("z", Z))
}
got = next(iter(compiled(feeds).values())).ravel().astype(int)
print(f"openvino {openvino.__version__}, onnx {onnx.__version__}, numpy {np.__version__}")
print("expected", expected.tolist())
print("got     ", got.tolist())
sys.exit(int((expected != got).any()))
