"""tflite_ref: softmax_tables_differ

SOFTMAX of 16 bits reads tables of exponentials and of 1 / (1 + x) that differ from LiteRT's in the last bit: codes
differ by 1
Severity: design. Seen in tflite_micro 0.dev20261023182759.
Cause: the tables come from gen_lut over the real numbers -10 to 0, LiteRT's from LUTPopulate over codes.
Case: softmax(x: [20, 3]) axis=1 channels_first, data random, found by generated cases of quantizer.
"""

from importlib.metadata import version
import base64
import sys
import zlib

import numpy as np
from tflite_micro.python.tflite_micro import runtime

x = np.array([[0, 0, 0], [0, 0, 0], [0, 0, 0], [0, 0, 0], [0, 0, 0], [0, 0, 0], [0, 0, 0], [0, 0, 0], [0, 0, 0], [0,
    0, 0], [0, 0, 0], [0, 0, 0], [0, 0, 0], [0, 0, 0], [0, 0, 0], [0, 0, 0], [0, 0, 0], [0, 0, 0], [0, 0, 0], [13311,
    3716, 15646]], np.int16)
s_x, z_x = 3.051804378628731e-05, 0
s_y, z_y = 3.0517578125e-05, 0

# Right: what the arithmetic declared for tflite_ref gives, restated in integers.
expected = np.array([[10922, 10922, 10922], [10922, 10922, 10922], [10922, 10922, 10922], [10922, 10922, 10922],
    [10922, 10922, 10922], [10922, 10922, 10922], [10922, 10922, 10922], [10922, 10922, 10922], [10922, 10922, 10922],
    [10922, 10922, 10922], [10922, 10922, 10922], [10922, 10922, 10922], [10922, 10922, 10922], [10922, 10922, 10922],
    [10922, 10922, 10922], [10922, 10922, 10922], [10922, 10922, 10922], [10922, 10922, 10922], [10922, 10922, 10922],
    [11620, 8671, 12478]], np.int64)

print(f"tflite-micro {version('tflite-micro')}, numpy {np.__version__}")
print("expected", expected.ravel()[:16].tolist(), flush=True)
model = zlib.decompress(base64.b64decode(
    "eNp1kCEPwjAQhd9ggZGMZllGMhwCgSQBMQeCEARiAolAIBEIBCSICQQ/m9frdWkIdPl66d17t15LAIftfgEYFIiRIGUm4wnoEncCa0BEJhqXGjei"
    "GYrOuztkrKRt10xqpfaYkpl47Oc8c1JrX2j0HCVjMKK60H6mzQMnciP9H5qLaq7kFWgSuZ3T2HUnT/ImA71Toe8QST2Xt3CTQqbL9d9n7fHtefzx"
    "rMkumDOcF+hRG3O3q1nZXANUXhd4qtBv1weq9Q7Q"
))
interpreter = runtime.Interpreter.from_bytes(model, arena_size=1 << 24)
for place, values in enumerate([x]):
    interpreter.set_input(np.asarray(values, order='C'), place)
interpreter.invoke()
got = interpreter.get_output(0)
got = got.astype(np.int64)
assert got.shape == expected.shape, f"shape {got.shape}, right is {expected.shape}"
wrong = got != expected
at = np.flatnonzero(wrong)[:8]
print("at element ", at.tolist())
print("expected is", expected.ravel()[at].tolist())
print("got         ", got.ravel()[at].tolist())
print("differs" if wrong.any() else "agrees")
sys.exit(int(wrong.any()))
