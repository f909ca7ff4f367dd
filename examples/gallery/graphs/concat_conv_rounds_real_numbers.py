"""OpenVINO rounds the real numbers of a concatenation to whole ones if a convolution reads its codes of zero point 0.

Needs numpy, onnx and openvino. The graph: x and z are quantized, joined along the channels, quantized again; then a
convolution of 1 x 1 with a bias, and codes. The expected codes are those of ONNX's operators in float64, each after
the other; all of them are far from a tie.
"""

import sys

import numpy as np
import onnx
import openvino
from onnx import TensorProto, helper, numpy_helper

SCALES = {"x": 1 / 1024, "z": 1 / 128, "j": 1 / 128, "w": 1 / 64, "c": 1 / 64}
X, Z, W, BIAS = np.array([96, -80, 48, 8]), np.array([90, -77, 33, 100]), (20, 40), 0.5

nodes = []
constants = [
    numpy_helper.from_array(np.array(W, np.int8).reshape(1, 2, 1, 1), "w_codes"),
    numpy_helper.from_array(np.array([BIAS], np.float32), "bias"),
    numpy_helper.from_array(np.int8(0), "zero"),
]
for name, scale in SCALES.items():
    constants.append(numpy_helper.from_array(np.float32(scale), f"{name}_scale"))


def quantize(name: str) -> None:
    nodes.append(helper.make_node("QuantizeLinear", [name, f"{name}_scale", "zero"], [f"{name}_codes"]))


def dequantize(name: str) -> None:
    nodes.append(helper.make_node("DequantizeLinear", [f"{name}_codes", f"{name}_scale", "zero"], [f"{name}_real"]))


for name in ("x", "z"):
    quantize(name)
    dequantize(name)
nodes.append(helper.make_node("Concat", ["x_real", "z_real"], ["j"], axis=1))
quantize("j")
dequantize("j")
dequantize("w")
nodes.append(helper.make_node("Conv", ["j_real", "w_real", "bias"], ["c"]))
quantize("c")
inputs = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [1, 1, 1, 4]) for name in ("x", "z")]
output = helper.make_tensor_value_info("c_codes", TensorProto.INT8, [1, 1, 1, 4])
graph = helper.make_graph(nodes, "joined", inputs, [output], constants)
model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)
onnx.checker.check_model(model)

joined = [np.rint(codes * SCALES[name] / SCALES["j"]) * SCALES["j"] for name, codes in (("x", X), ("z", Z))]
sums = sum(values * weight * SCALES["w"] for values, weight in zip(joined, W, strict=True)) + BIAS
expected = np.rint(sums / SCALES["c"]).astype(int)
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
