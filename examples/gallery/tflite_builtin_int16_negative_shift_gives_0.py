"""tflite_builtin: int16_negative_shift_gives_0

the multiplier of int16 kernels is shifted by 15 - exponent; from 2**15 on that count is negative, and outputs are 0
instead of saturated; a product beyond int32 keeps its low 32 bits (MultiplyByQuantizedMultiplier for 64-bit sums,
LiteRT 2.3)
Severity: wrong. Seen in litert builtin.
Cause: MultiplyByQuantizedMultiplier for int64 shifts by 15 - shift, which is negative for large multipliers.
See also https://github.com/tensorflow/tensorflow/pull/42134
Case: conv2d(x: [1, 1, 1, 1], weight: [1, 1, 1, 1]) dilation=[1, 1] groups=1 padding=[0, 0, 0, 0] stride=[1, 1]
channels_first, data random, found by generated cases of quantizer.
"""

from importlib.metadata import version
import base64
import sys
import zlib

import numpy as np
from ai_edge_litert.interpreter import Interpreter, OpResolverType

x = np.array([[[[5736]]]], np.int16)
s_x, z_x = 3.051804378628731e-05, 0
weight = np.array([[[[-127]]]], np.int8)
s_weight, z_weight = np.array([0.00271426048129797]), np.array([0])
s_y, z_y = 3.0518044146464474e-13, 0

# Right: the value of the codes in integers and float64, rounded once.
X, W = x.astype(np.int64) - z_x, weight.astype(np.int64)
sums = np.einsum("ncyx,kcij->nkyx", X, W)
real = sums * (s_x * s_weight.reshape([1, -1, 1, 1]))
steps = real / s_y
expected = np.clip(np.sign(steps) * np.floor(np.abs(steps) + 0.5) + z_y, -32768, 32767).astype(np.int64)

print(f"ai-edge-litert {version('ai-edge-litert')}, numpy {np.__version__}")
print("expected", expected.ravel().tolist(), flush=True)
model = zlib.decompress(base64.b64decode(
    "eNqTYGBgCHHzMWZg4GMQYWBh4GDgAYoIAHkMDMxADOExAOUYGBiBWANK20DlfUD6gTgBrJYXrB5mCitUDcQcmOkCYDkLIPaA6g8A6wFBEGADqmIB"
    "kgwMDlj4LFD7SoB4ChBvgbqHAUozQ+kDULqRAQE4GJABH4Mo0DQRqJtA/l0CldkAxEeAmB2Lmj1Qc08A8RMg5sSi5g4QM0HpL2A3Y6p5A7XrByhs"
    "GBF2cYBDCqIG5imQvAIjxF4WqP3ouIJBCBxPkNBnAIe4EFQ/BzSAsOkFhWt5amZ6BihAcZhxBeoXBiR9ILOSMhOLcenZAY0DBjxursShFxSvc6B6"
    "mZHsZUKKYwEGMXB4sgBDTQAcqtjtAOEGSHKDpxMYe89DQ2ts4nmPNhpjE1c+u1oLXRwAav0msg=="
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
wrong = np.abs(got - np.clip(steps + z_y, -32768, 32767)) > 0.501
print("got     ", got.ravel().tolist())
print("differs" if wrong.any() else "agrees")
sys.exit(int(wrong.any()))
