"""tflite_ref: fully_connected_rounded_twice

FULLY_CONNECTED of 8 bits rounds twice, in the high multiply and in the shift; LiteRT's reference rounds once. 32.375
becomes 33
Severity: design. Seen in tflite_micro 0.dev20261023182759.
See also https://github.com/tensorflow/tflite-micro/issues/3252
Case: fully_connected(x: [1, 1], weight: [3, 1], bias: [3]) channels_first, data ties, found by generated cases of
quantizer.
"""

from importlib.metadata import version
import base64
import sys
import zlib

import numpy as np
from tflite_micro.python.tflite_micro import runtime

x = np.array([[1]], np.int8)
s_x, z_x = 0.0625, 0
weight = np.full([3, 1], 0, np.int8)
s_weight, z_weight = np.array([1.0, 1.0, 1.0]), np.array([0, 0, 0])
bias = np.array([0, 0, 187391], np.int32)
s_bias, z_bias = np.array([0.0625, 0.0625, 0.0625]), np.array([0, 0, 0])
s_y, z_y = 128.0, 0

# Right: the value of the codes in integers and float64, rounded once.
sums = (x.astype(np.int64) - z_x) @ (weight.astype(np.int64)).T
real = sums * (s_x * s_weight) + (s_bias * bias.astype(np.int64))
steps = real / s_y
expected = np.clip(np.rint(steps) + z_y, -128, 127).astype(np.int64)

print(f"tflite-micro {version('tflite-micro')}, numpy {np.__version__}")
print("expected", expected.ravel().tolist(), flush=True)
model = zlib.decompress(base64.b64decode(
    "eNqTYGBgCHHzMWZg4GMQYWBh4GDgAYoIAHkMDMxADOExAOUYGBiBWANK20DlfUD6gTgBrJYXrB5mCicS5oGbLgCWswBiD6j+ALAeEAQBNqAqFiDJ"
    "wOCAhQ9SEwHEFUA8A4h3QN3DAKWZofQRKBsZ8CCx/99mYgD5WRRoogjUXSA/L4HKrwDiPWC3Y6rZArUDZPcVHGrOADETlH4CZmOquQO16wEQf0Ey"
    "hwMcWhA1IPACKg+ylANqLiMSrmAQAscRJOQhPhUCkjeQ7GBCChtQWJanZqZnlIBksOvdAMQH0MIVFPZJmYnFuPSsgYYZA5IbYXZW4tCzAmoXA1J8"
    "MaLpB7mYFZoGGODx3WDLiBSfEHUN9giMGf8MmOptERi/eqhdzkhsMAAA66oqDA=="
))
interpreter = runtime.Interpreter.from_bytes(model, arena_size=1 << 24)
for place, values in enumerate([x]):
    interpreter.set_input(np.asarray(values, order='C'), place)
interpreter.invoke()
got = interpreter.get_output(0)
got = got.astype(np.int64)
assert got.shape == expected.shape, f"shape {got.shape}, right is {expected.shape}"
wrong = got != expected
print("got     ", got.ravel().tolist())
print("differs" if wrong.any() else "agrees")
sys.exit(int(wrong.any()))
