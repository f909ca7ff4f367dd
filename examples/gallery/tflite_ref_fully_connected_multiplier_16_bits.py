"""tflite_ref: fully_connected_multiplier_16_bits

FULLY_CONNECTED of 16 bits multiplies the sum by 16 bits of the multiplier, like convolutions; LiteRT's reference
multiplies by a float64 number. 1441.503 becomes 1441
Severity: design. Seen in tflite_micro 0.dev20261023182759.
Cause: MultiplyByQuantizedMultiplier for 64-bit sums keeps 16 bits of the multiplier.
Case: fully_connected(x: [4, 3], weight: [1, 3]) channels_first, data random, found by generated cases of quantizer.
"""

from importlib.metadata import version
import base64
import sys
import zlib

import numpy as np
from tflite_micro.python.tflite_micro import runtime

x = np.array([[0, 0, 0], [0, 0, 0], [0, 0, 0], [27645, 1703, 32767]], np.int16)
s_x, z_x = 3.051804378628731e-05, 0
weight = np.array([[4, 59, 127]], np.int8)
s_weight, z_weight = np.array([0.007874015718698502]), np.array([0])
s_y, z_y = 0.0007288931519724429, 0

# Right: the value of the codes in integers and float64, rounded once.
sums = (x.astype(np.int64) - z_x) @ (weight.astype(np.int64)).T
real = sums * (s_x * s_weight)
steps = real / s_y
expected = np.clip(np.rint(steps) + z_y, -32768, 32767).astype(np.int64)

print(f"tflite-micro {version('tflite-micro')}, numpy {np.__version__}")
print("expected", expected.ravel().tolist(), flush=True)
model = zlib.decompress(base64.b64decode(
    "eNqTYGBgCHHzMWZg4GMQYWBh4GDgAYoIAHkMDMxADOExAOUYGBiBWAVKWwAxExB7AHEAWB0vWC3MBE4kzAM3WQAspwHEJlAzbMB6QBAE2ICqWIAk"
    "RB5kvwsQpwBxC9ReBijNBKUnMCAASD2LdT0DyC+iQHNEoHaC/NIAVQMyZwYQs2NRMwFq5hQg3gB2O6aaFVBz1gDxASRzOMC+hKgBgS1Q+TNAzAF1"
    "LwvUjSA7KhiEwOEKCTEGcCgJAcklSHbA/MgMDhkGhvLUzPSMEpAMdr01UP8xINnHCMWVOPQkAHEGUvjBwvc/EMDCGWQ7KzReYPLA8LRgRAp7EJuF"
    "idGGASmeYGxDYXsrdHEYAACE7h4L"
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
