"""tflite_ref: tanh_large_scale_wraps

TANH of 8 bits has the left shift of LOGISTIC: if the input's scale is 16 or more, every output is code -128, also for
tanh(0)
Severity: wrong. Seen in tflite_micro 0.dev20261023182759.
Case: tanh(x: [3, 36]) channels_first, data every_code, found by generated cases of quantizer.
"""

from importlib.metadata import version
import base64
import sys
import zlib

import numpy as np
from tflite_micro.python.tflite_micro import runtime

x = np.full([3, 36], 0, np.int8)
s_x, z_x = 32.125492095947266, 0
s_y, z_y = 0.0078125, 0

# Right: the value of the codes in integers and float64, rounded once.
X = s_x * (x.astype(np.int64) - z_x)
real = np.tanh(X)
steps = real / s_y
expected = np.clip(np.rint(steps) + z_y, -128, 127).astype(np.int64)

print(f"tflite-micro {version('tflite-micro')}, numpy {np.__version__}")
print("expected", expected.ravel()[:16].tolist(), flush=True)
model = zlib.decompress(base64.b64decode(
    "eNp1kLEOgkAQRAexUIIXQjChsLCwsDTRksoYKwsLCkoKC0sLC+30z53bGwwheuRlud2ZZZcSQH08bQGHAmNMkDKT8QbEJNzAGhCRpeJO8WCamek6"
    "94gsRPrtmlmtVI8VWZvHP8GzIWf1hWJHYxmHOdWF+jnp/anJlUx/aFppLuRhmoSVMFWi2o3cNUes+SLT57Z/2A62Ua7vNvIOPc8/Hv/Pqt5uwx3f"
    "L+z7td57Ncx35wMyIQ1g"
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
