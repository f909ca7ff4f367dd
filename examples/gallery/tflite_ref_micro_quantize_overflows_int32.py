"""tflite_ref: micro_quantize_overflows_int32

TensorFlow Lite Micro's QUANTIZE has the conversion of LiteRT's; a number below -2**31 steps gives the largest code
Severity: wrong. Seen in tflite_micro 0.dev20261023182759.
Cause: a float32 number of steps is converted to int32 without saturation (cvttss2si gives the smallest integer).
Case: quantize(x: [1]) channels_first, data random, found by generated cases of quantizer.
"""

from importlib.metadata import version
import base64
import sys
import zlib

import numpy as np
from tflite_micro.python.tflite_micro import runtime

x = np.array([-152039840.0], np.float32)
s_y, z_y = 0.009803921915590763, -26

# Right: the value of the codes in integers and float64, rounded once.
real = x.astype(np.float64)
steps = real / s_y
expected = np.clip(np.rint(steps) + z_y, -128, 127).astype(np.int64)

print(f"tflite-micro {version('tflite-micro')}, numpy {np.__version__}")
print("expected", expected.ravel().tolist(), flush=True)
model = zlib.decompress(base64.b64decode(
    "eNptUDkOwjAQHI4iSMEyUZBSpqCgoIOSEiEKCooUIOUVqcJv4HN8A/YYIxRhazRe7+x41xWA5njeAgElpsiQy02UCJgIPILkgJGgJu/IB9PMTZeq"
    "x4KOyL+u0XIVPVaCtdXo9pqN4ERfkBMa81qINpqbel2pcw5YSrbkW4FeILeCGTWZdeUaXRf6q+Y2eLcfxHcU9h8+Layr4mce/Ok/zajn56PeK7/e"
    "vj6CHBRy"
))
interpreter = runtime.Interpreter.from_bytes(model, arena_size=1 << 24)
for place, values in enumerate([x]):
    interpreter.set_input(np.asarray(values, order='C'), place)
interpreter.invoke()
got = interpreter.get_output(0)
got = got.astype(np.int64)
assert got.shape == expected.shape, f"shape {got.shape}, right is {expected.shape}"
wrong = np.abs(got - np.clip(steps + z_y, -128, 127)) > 0.501
print("got     ", got.ravel().tolist())
print("differs" if wrong.any() else "agrees")
sys.exit(int(wrong.any()))
