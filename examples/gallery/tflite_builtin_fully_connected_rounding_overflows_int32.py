"""tflite_builtin: fully_connected_rounding_overflows_int32

the reference kernel of FULLY_CONNECTED rounds the float64 product to int32 without saturation: beyond it, x86-64
gives the smallest number, and a large positive sum the smallest code (LiteRT 2.3)
Severity: wrong. Seen in litert builtin.
Cause: the float64 product is cast to int32 before it is clamped.
Case: fully_connected(x: [1, 1], weight: [1, 1], bias: [1]) channels_first, data random, found by generated cases of
quantizer.
"""

from importlib.metadata import version
import base64
import sys
import zlib

import numpy as np
from ai_edge_litert.interpreter import Interpreter, OpResolverType

x = np.array([[-20350]], np.int16)
s_x, z_x = 3.051804378628731e-05, 0
weight = np.array([[127]], np.int8)
s_weight, z_weight = np.array([0.0004952153540216386]), np.array([0])
bias = np.array([61186626], np.int32)
s_bias, z_bias = np.array([1.5113004181444012e-08]), np.array([0])
s_y, z_y = 3.051804482409083e-14, 0

# Right: the value of the codes in integers and float64, rounded once.
sums = (x.astype(np.int64) - z_x) @ (weight.astype(np.int64)).T
real = sums * (s_x * s_weight) + (s_bias * bias.astype(np.int64))
steps = real / s_y
expected = np.clip(np.sign(steps) * np.floor(np.abs(steps) + 0.5) + z_y, -32768, 32767).astype(np.int64)

print(f"ai-edge-litert {version('ai-edge-litert')}, numpy {np.__version__}")
print("expected", expected.ravel().tolist(), flush=True)
model = zlib.decompress(base64.b64decode(
    "eNqTYGBgCHHzMWZg4GMQYWBh4GDgAYoIAHkMDMxADOExAOUYGBiBWANK20DlfUD6gTgBrJYXrB5mCicS5oGbLgCWswBiD6j+ALAeEAQBNqAqFiDJ"
    "wOCAhc8Cta8EiKcA8RaoexigNDOUPgCl6xkQgAOInRYtZYbw+BhEgaaJQN0E8u8SqLoVQLwHiNmxqIHZtwOIr4D9hqnmDBAzQeknYDdjqrkDtesB"
    "EH9BsosDHFIQNSDwAioPspQDai4jEq5gEALHDyTUGcAhLQQkb0DNZkDTAwrH8tTM9AxQAOLQuwXqfwYkfaBwT8pMLMalZwYQL8BiHwhX4tBTA8Qt"
    "UD3MSPYxIcUlyMWs0PiHyTdAkg883mHs8IuMVtjEb15sNMIm/rKAUxNdHACVmCoc"
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
