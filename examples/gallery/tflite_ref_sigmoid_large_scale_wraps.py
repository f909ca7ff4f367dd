"""tflite_ref: sigmoid_large_scale_wraps

LOGISTIC of 8 bits needs a left shift of more than 31 bits if the input's scale is 16 or more (LiteRT's table does
not): every output is code -128, also for sigmoid(0)
Severity: wrong. Seen in tflite_micro 0.dev20261023182759.
Cause: input_left_shift exceeds 31 and the shifted input wraps.
Case: sigmoid(x: [3, 36]) channels_first, data every_code, found by generated cases of quantizer.
"""

from importlib.metadata import version
import base64
import sys
import zlib

import numpy as np
from tflite_micro.python.tflite_micro import runtime

x = np.full([3, 36], 0, np.int8)
s_x, z_x = 32.125492095947266, 0
s_y, z_y = 0.00390625, -128

# Right: the value of the codes in integers and float64, rounded once.
X = s_x * (x.astype(np.int64) - z_x)
real = 1 / (1 + np.exp(-X))
steps = real / s_y
expected = np.clip(np.rint(steps) + z_y, -128, 127).astype(np.int64)

print(f"tflite-micro {version('tflite-micro')}, numpy {np.__version__}")
print("expected", expected.ravel()[:16].tolist(), flush=True)
model = zlib.decompress(base64.b64decode(
    "eNp1UKEOwjAUvDEELNAsy0gmEQgkCThQhKAQiInJCQQSgQA3vhxur9ewLNDm8tre3du7FQDK42kNOOQYYoQJX1LegJjwN5ADImKuulE9mGZquuAe"
    "AOZ3xoWuqXGFeiyIpXna7T0r4qy+UA2o7MVhRnWufk76dpXElRj/0NTSXIiHaRIyfqpE3I24a45Y80Wmzyy/TwdLlOm7lbx9z/OPp/1nu062fsZX"
    "g32X+56bbTg3b78C/wFzjBU8"
))
interpreter = runtime.Interpreter.from_bytes(model, arena_size=1 << 24)
for place, values in enumerate([x]):
    interpreter.set_input(np.asarray(values, order='C'), place)
interpreter.invoke()
got = interpreter.get_output(0)
got = got.astype(np.int64)
assert got.shape == expected.shape, f"shape {got.shape}, right is {expected.shape}"
wrong = np.abs(got - np.clip(steps + z_y, -128, 127)) > 0.501
at = np.flatnonzero(wrong)[:8]
print("at element ", at.tolist())
print("expected is", expected.ravel()[at].tolist())
print("got         ", got.ravel()[at].tolist())
print("differs" if wrong.any() else "agrees")
sys.exit(int(wrong.any()))
