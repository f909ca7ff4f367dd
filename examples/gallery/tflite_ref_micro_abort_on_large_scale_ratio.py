"""tflite_ref: micro_abort_on_large_scale_ratio

TensorFlow Lite Micro ends the process in the same cases as LiteRT: in ADD and SUB, an input's scale must be less than
2**14 times that of a 16-bit output (2**19 times for 8 bits)
Severity: memory. Seen in tflite_micro 0.dev20261023182759.
Cause: ADD and SUB call QuantizeMultiplierSmallerThanOneExp, whose TFLITE_CHECK_LT(multiplier, 1) aborts.
See also https://github.com/tensorflow/tensorflow/issues/60815
See also https://github.com/tensorflow/tensorflow/pull/61698
Case: sub(a: [1], b: [1]) channels_first, data every_code, found by generated cases of quantizer.
"""

from importlib.metadata import version
import base64
import sys
import zlib

import numpy as np
from tflite_micro.python.tflite_micro import runtime

a = np.array([0], np.int16)
s_a, z_a = 0.00024414435029029846, 0
b = np.array([0], np.int16)
s_b, z_b = 1.1641709818377421e-10, 0
s_y, z_y = 6.985025891026453e-10, 0

# Right: the value of the codes in integers and float64, rounded once.
A = s_a * (a.astype(np.int64) - z_a)
B = s_b * (b.astype(np.int64) - z_b)
real = A - B
steps = real / s_y
expected = np.clip(np.rint(steps) + z_y, -32768, 32767).astype(np.int64)

print(f"tflite-micro {version('tflite-micro')}, numpy {np.__version__}")
print("expected", expected.ravel().tolist(), flush=True)
for _ in range(20):  # what is read may change from run to run
    model = zlib.decompress(base64.b64decode(
        "eNqTYGBgCHHzMWZg4GMQYWBh4GDgAYoIAHkMDMxADOExAOUYGBiBWAFKm0BpF7AaXrA6mG4mINaEYh64qQJgOQkgVgFiHSA2AOsBQYhdFkAcAcQV"
        "UDMYoHYwQvkgugEsyscgCtQlAjWXDy4OoacAMTsWNT1QNSB6AQ41M6BqQPQaJDUcYJ9A1DBA9a8A4i1ALIPkThBOZBAChxkkRBjAoSAEJCdA3caA"
        "pj4Jh/oSIK7Bor4Sh/oYIE6BqscWfhwMbEAdrFA9sPBssGRkQABoGOvD2MjiBxgcDNDFAYzUFrw="
    ))
    interpreter = runtime.Interpreter.from_bytes(model, arena_size=1 << 24)
    for place, values in enumerate([a, a]):
        interpreter.set_input(np.asarray(values, order='C'), place)
    interpreter.invoke()
    got = interpreter.get_output(0)
    got = got.astype(np.int64)
    assert got.shape == expected.shape, f"shape {got.shape}, right is {expected.shape}"
    wrong = np.abs(got - np.clip(steps + z_y, -32768, 32767)) > 0.501
    if wrong.any():
        break
print("got     ", got.ravel().tolist())
print("differs" if wrong.any() else "agrees")
sys.exit(int(wrong.any()))
