"""tflite_ref: ties_half_even

the delegate multiplies in float32 and rounds half to even, where the reference kernels round a 31-bit product twice,
away from zero; weights of 4 bits go to ruy (LiteRT 2.3)
Severity: design. Seen in litert xnnpack 2.3.0.
See also https://github.com/google-ai-edge/LiteRT/issues/7441
Case: conv2d(x: [1, 1, 1, 1], weight: [4, 1, 1, 1], bias: [4]) dilation=[1, 1] groups=1 padding=[0, 0, 0, 0]
stride=[1, 1] channels_first, data ties, found by generated cases of quantizer.
"""

from importlib.metadata import version
import base64
import sys
import zlib

import numpy as np
from ai_edge_litert.interpreter import Interpreter, OpResolverType

x = np.array([[[[1]]]], np.int8)
s_x, z_x = 0.0625, 0
weight = np.full([4, 1, 1, 1], 0, np.int8)
s_weight, z_weight = np.array([1.0, 1.0, 1.0, 1.0]), np.array([0, 0, 0, 0])
bias = np.array([0, 0, 0, 103423], np.int32)
s_bias, z_bias = np.array([0.0625, 0.0625, 0.0625, 0.0625]), np.array([0, 0, 0, 0])
s_y, z_y = 128.0, 0

# Right: what the arithmetic declared for tflite_ref gives, restated in integers.
expected = np.array([[[[0]], [[0]], [[0]], [[51]]]], np.int64)

print(f"ai-edge-litert {version('ai-edge-litert')}, numpy {np.__version__}")
print("expected", expected.ravel().tolist(), flush=True)
model = zlib.decompress(base64.b64decode(
    "eNqTYGBgCHHzMWZg4GMQYWBh4GDgAYoIAHkMDMxADOExAOUYGBiBWANK20DlfUD6gTgBrJYXrB5mCitUDcQcmOkCYDkLIPaA6g8A6wFBEGADqmIB"
    "kgwMDlj4IDUxQFwDxHOAeA/UPQxQmhlKn4CqRQYCaPz/k0Eq+RhEgSpFoG4D+XsJVH4DEB8BYk4savYg2fMEh5o7QMwEpb+A2Zhq3kDt+gEKI0aE"
    "ORzgEIOogXkOJK/ACLGXBWo/Oq5gEIL6E2QGAzjkhaD6OaABxYJFPyh8y1Mz0zNKQCqwm3EF6ldYWMPMScpMLMal5wYQv2BA2ItsJ4xfice+O1C9"
    "zEj2MiHFtQCDGDg8WYChJgAOVezhAvF6gy0DUnphgKeRBntkjJ5usAEWuHkITIw+qN3O6O6AAQB+MykU"
))
interpreter = Interpreter(model_content=model, experimental_op_resolver_type=OpResolverType.BUILTIN,
                          num_threads=1)
interpreter.allocate_tensors()
feeds = {"x": x}
for detail in interpreter.get_input_details():
    interpreter.set_tensor(detail["index"], np.asarray(feeds[detail["name"]], order="C"))
interpreter.invoke()
got = interpreter.get_tensor(interpreter.get_output_details()[0]["index"])
got = got.reshape([1, 4, 1, 1]).astype(np.int64)
assert got.shape == expected.shape, f"shape {got.shape}, right is {expected.shape}"
wrong = got != expected
print("got     ", got.ravel().tolist())
print("differs" if wrong.any() else "agrees")
sys.exit(int(wrong.any()))
