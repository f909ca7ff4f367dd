"""float32_any_order: conv2d_empty_input_uninitialised

OpenVINO's convolution of an operand without elements, whose windows all lie in the padding, returns uninitialised
memory: -96, -37, 41 instead of 0. A tile that lies wholly in the padding has such an operand
Severity: memory. Seen in openvino 2026.4.1.
Case: conv2d(x: [1, 1, 1, 1], weight: [1, 1, 1, 1]) dilation=[1, 1] groups=1 padding=[0, 0, 0, 2] stride=[1, 1]
channels_first tiles=ow2, data corners, found by generated cases of quantizer.
"""

import sys

import numpy as np
import onnx
import openvino
from onnx import TensorProto, helper, numpy_helper

x = np.array([[[[-128]]]], np.int8)
s_x, z_x = 0.003921568859368563, -128
weight = np.array([[[[-127]]]], np.int8)
s_weight, z_weight = np.array([0.007874015718698502]), np.array([0])
s_y, z_y = 0.003921568859368563, -128

# Right: the value of the codes in integers and float64, rounded once.
X, W = np.pad(x.astype(np.int64) - z_x, [(0, 0), (0, 0), (0, 0), (0, 2)]), weight.astype(np.int64)
sums = np.einsum("ncyx,kcij->nkyx", X, W)
real = sums * (s_x * s_weight.reshape([1, -1, 1, 1]))
steps = real / s_y
expected = np.clip(np.rint(steps) + z_y, -128, 127).astype(np.int64)

print(f"openvino {openvino.__version__}, onnx {onnx.__version__}, numpy {np.__version__}")
print("expected", expected.ravel().tolist(), flush=True)
for _ in range(20):  # what is read may change from run to run
    nodes = [
        helper.make_node("DequantizeLinear", ["x", "x_scale", "x_zero"], ["n0"]),
        helper.make_node("DequantizeLinear", ["weight_codes", "weight_scale", "weight_zero"], ["n1"], axis=0),
        helper.make_node("Conv", ["n0", "n1"], ["n2"], dilations=[1, 1], group=1, pads=[0, 0, 0, 2], strides=[1, 1]),
        helper.make_node("QuantizeLinear", ["n2", "y_scale", "y_zero"], ["n3"]),
    ]
    constants = {
        "x_scale": np.array(0.003921569, np.float32),
        "x_zero": np.array(-128, np.int8),
        "weight_codes": weight,
        "weight_scale": np.array([0.007874016], np.float32),
        "weight_zero": np.array([0], np.int8),
        "y_scale": np.array(0.003921569, np.float32),
        "y_zero": np.array(-128, np.int8),
    }
    inputs = [helper.make_tensor_value_info("x", TensorProto.INT8, [1, 1, 1, 1])]
    outputs = [helper.make_tensor_value_info("n3", TensorProto.INT8, [1, 1, 1, 3])]
    kept = [numpy_helper.from_array(np.array(values, order='C'), name) for name, values in constants.items()]
    graph = helper.make_graph(nodes, "one", inputs, outputs, kept)
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8)
    model = made.SerializeToString()
    core = openvino.Core()
    config = {"INFERENCE_NUM_THREADS": 1, "INFERENCE_PRECISION_HINT": "f32"}
    compiled = core.compile_model(core.read_model(model, b""), "CPU", config)
    got = next(iter(compiled({"x": x}).values()))
    got = got.astype(np.int64)
    assert got.shape == expected.shape, f"shape {got.shape}, right is {expected.shape}"
    wrong = np.abs(got - np.clip(steps + z_y, -128, 127)) > 0.501
    if wrong.any():
        break
print("got     ", got.ravel().tolist())
print("differs" if wrong.any() else "agrees")
sys.exit(int(wrong.any()))
