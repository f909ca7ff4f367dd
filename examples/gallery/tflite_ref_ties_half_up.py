"""tflite_ref: ties_half_up

kernels without a delegate round a tie between negative codes up, where the reference kernels round it away from zero
(ruy, and vectors of eight channels; LiteRT 2.3)
Severity: design. Seen in litert builtin 2.3.0.
See also https://github.com/tensorflow/tensorflow/issues/25087
Case: conv2d(x: [1, 1, 1, 1], weight: [1, 1, 1, 1], bias: [1]) dilation=[1, 1] groups=1 padding=[0, 0, 0, 0]
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
weight = np.array([[[[0]]]], np.int8)
s_weight, z_weight = np.array([1.0]), np.array([0])
bias = np.array([-23553], np.int32)
s_bias, z_bias = np.array([0.0625]), np.array([0])
s_y, z_y = 128.0, 0

# Right: the value of the codes in integers and float64, rounded once.
X, W = x.astype(np.int64) - z_x, weight.astype(np.int64)
sums = np.einsum("ncyx,kcij->nkyx", X, W)
real = sums * (s_x * s_weight.reshape([1, -1, 1, 1])) + (s_bias * bias.astype(np.int64)).reshape([1, -1, 1, 1])
steps = real / s_y
expected = np.clip(np.rint(steps) + z_y, -128, 127).astype(np.int64)

print(f"ai-edge-litert {version('ai-edge-litert')}, numpy {np.__version__}")
print("expected", expected.ravel().tolist(), flush=True)
model = zlib.decompress(base64.b64decode(
    "eNqTYGBgCHHzMWZg4GMQYWBh4GDgAYoIAHkMDMxADOExAOUYGBiBWANK20DlfUD6gTgBrJYXrB5mCitUDcQcmOkCYDkLIPaA6g8A6wFBEGADqmIB"
    "kgwMDlj4LFD1BUA8AYg3QN3DAKWZofQeJHEYAOn9v/j/f5BfRYE8Eah7QH5dAlUDMu8IEHNiUQMz8wQQP8Gh5g4QM0HpL2A2ppo3ULt+gMKFEWEO"
    "BziUIGpgHgLJKzBC7GWB2o+OKxiEwHEECXkGcGgLQfWzMCL8jq4PFKblqZnpGSUgFdjNuADEN5DCF+aOpMzEYlx6tkDDigGPmytx6AXF6QyoXmYk"
    "e5mQ4leAQQwcnizAUBMAhyp2OyBeb7BFTgdQMXsGtPQBU4tdnMGZAUt6AgEA/X8lYQ=="
))
interpreter = Interpreter(model_content=model, experimental_op_resolver_type=OpResolverType.BUILTIN_WITHOUT_DEFAULT_DELEGATES,
                          num_threads=1)
interpreter.allocate_tensors()
feeds = {"x": x}
for detail in interpreter.get_input_details():
    interpreter.set_tensor(detail["index"], np.asarray(feeds[detail["name"]], order="C"))
interpreter.invoke()
got = interpreter.get_tensor(interpreter.get_output_details()[0]["index"])
got = got.astype(np.int64)
assert got.shape == expected.shape, f"shape {got.shape}, right is {expected.shape}"
wrong = got != expected
print("got     ", got.ravel().tolist())
print("differs" if wrong.any() else "agrees")
sys.exit(int(wrong.any()))
