"""tflite_builtin: unary_left_shift_wraps

a multiplier of 1 and more shifts a code, or the sum of a mean, to the left first, in 32 bits that wrap: an output
much finer than its input comes out with the other sign (MultiplyByQuantizedMultiplier, LiteRT 2.3)
Severity: wrong. Seen in litert builtin.
Cause: MultiplyByQuantizedMultiplier computes x * (1 << left_shift) in int32.
See also https://github.com/tensorflow/tensorflow/pull/61698
Case: relu(x: [1, 1]) channels_first, data zero_point_extremes, found by generated cases of quantizer.
"""

from importlib.metadata import version
import base64
import sys
import zlib

import numpy as np
from ai_edge_litert.interpreter import Interpreter, OpResolverType

x = np.array([[28681]], np.int16)
s_x, z_x = 5.245288775768131e-05, 0
s_y, z_y = 1.9005980123054655e-10, 0

# Right: the value of the codes in integers and float64, rounded once.
X = s_x * (x.astype(np.int64) - z_x)
real = np.maximum(X, 0)
steps = real / s_y
expected = np.clip(np.sign(steps) * np.floor(np.abs(steps) + 0.5) + z_y, -32768, 32767).astype(np.int64)

print(f"ai-edge-litert {version('ai-edge-litert')}, numpy {np.__version__}")
print("expected", expected.ravel().tolist(), flush=True)
model = zlib.decompress(base64.b64decode(
    "eNqTYGBgCHHzMWZg4GMQYWBh4GDgAYoIAHkMDMxADOExAOUYGBiBWAFKm0BpF7AaXrA6mG4mIBaGYh64qQJgOQmoGSpArAHWA4IQPQZAHAA1lwFK"
    "w3AEWISPQRSoWgRqHh9UPQiEAHEGELNjUZMAVZMCxBVgNVxAGYiruKByBUBcAnUHsr0VDEJg/0N8xwD2kRDU3gioXnQ9lTj0gMLMBslv6H68wxBj"
    "gSwHY4v8DNBHF4cBABi5Dn0="
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
