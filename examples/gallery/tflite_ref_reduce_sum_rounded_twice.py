"""tflite_ref: reduce_sum_rounded_twice

SUM of TensorFlow Lite Micro multiplies by a fixed-point number and rounds twice, in the high multiply and in the
shift; LiteRT's reference multiplies in float32 and rounds once. -9755.36 becomes -9756
Severity: design. Seen in tflite_micro 0.dev20261023182759.
See also https://github.com/tensorflow/tflite-micro/issues/3252
Case: reduce_sum(x: [1]) axes=[0] keepdims=False channels_first, data corners, found by generated cases of quantizer.
"""

from importlib.metadata import version
import base64
import sys
import zlib

import numpy as np
from tflite_micro.python.tflite_micro import runtime

x = np.array([-32768], np.int16)
s_x, z_x = 9.808792674448341e-05, 0
s_y, z_y = 0.0003294748312328011, 0

# Right: the value of the codes in integers and float64, rounded once.
X = s_x * (x.astype(np.int64) - z_x)
real = X.sum((0,), keepdims=False)
steps = real / s_y
expected = np.clip(np.rint(steps) + z_y, -32768, 32767).astype(np.int64)

print(f"tflite-micro {version('tflite-micro')}, numpy {np.__version__}")
print("expected", expected.ravel().tolist(), flush=True)
model = zlib.decompress(base64.b64decode(
    "eNqTYGBgCHHzMWZg4GMQYWBh4GDgAYoIAHkMDMxADOExAOUYGBiBWAVKWwAxExB7AHEAWB0vWC3MBJCcFxTzwE0WAMtpALEJ1AwbsB4QBAE2oCoW"
    "IAmRB9nvAsQpQNwBtZcBSjNB6SkMCMACZ/ExiAJ5IlA7QX5pgcqA6BlAzA52lyBQlQBYFchdE6BmTgCbLwaECDMgQBQoxsBQA+VVAHEPyCxGiH0c"
    "YJ9C7AOBBqi7QW6UhpoNwxUMQlBTQfoYwK4RApIFUHMZkNSC/JVYkVrMgCReiUM/LD4YoGGEbA4TNIxZoWEMk+vbctaCASl8YezYvWss0cUBpJoX"
    "xA=="
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
