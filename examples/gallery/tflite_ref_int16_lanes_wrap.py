"""tflite_ref: int16_lanes_wrap

a number of output codes beyond 16 bits wraps before it saturates, or with its zero point, in whole vectors of the
optimized kernels: a large sum or product comes out with the other sign (vmovn_s32, vaddq_s16; LiteRT 2.3)
Severity: wrong. Seen in litert builtin 2.3.0.
Cause: optimized ADD and MUL narrow to 16 bits without saturation (vmovn_s32) and add the zero point in 16 bits
(vaddq_s16).
Case: add(a: [2, 4, 2], b: [2, 4, 2]) channels_first then relu6 tiles=d01xd21, data scale_spread, found by generated
cases of quantizer.
"""

from importlib.metadata import version
import base64
import sys
import zlib

import numpy as np
from ai_edge_litert.interpreter import Interpreter, OpResolverType

a = np.array([[[-37, 81], [18, 27], [-114, 65], [66, 70]], [[-7, 111], [42, 91], [4, -38], [53, -52]]], np.int8)
s_a, z_a = 0.003607536666095257, -36
b = np.array([[[-26, -122], [127, -116], [81, 30], [-80, 123]], [[8, 10], [127, -6], [70, 127], [-42, 1]]], np.int8)
s_b, z_b = 10926.6826171875, 19
s_y, z_y = 0.0235294122248888, -128

# Right: the value of the codes in integers and float64, rounded once.
A = s_a * (a.astype(np.int64) - z_a)
B = s_b * (b.astype(np.int64) - z_b)
real = A + B
real = np.clip(real, 0, 6)
steps = real / s_y
expected = np.clip(np.rint(steps) + z_y, -128, 127).astype(np.int64)

print(f"ai-edge-litert {version('ai-edge-litert')}, numpy {np.__version__}")
print("expected", expected.ravel().tolist(), flush=True)
model = zlib.decompress(base64.b64decode(
    "eNqTYGBgCHHzMWZg4GMQYWBh4GDgAYoIAHkMDMxADOExAOUYGBiBWAFKm0BpF7AaXrA6mG4mBgTggZsqAJaTAGIVINYBYgOwHhCE2GUBxBFAXIFk"
    "BiMUM0HpBrAoH4MoUJcI1Fw+uDgDQwcQzwFiTixqpkDVgOQ34FCzAqoGJH8ESQ0H2CcQNSCwA4gPAPEZIOaGup8J7B+EWxMZhMBhBwkZSGgIAckF"
    "QLwEag42fUk49NUAcQsefZU49MUAcQpUH7Zw5WBgA+pgBethhorn5ORYg+g7/yEAxN69S8sNplcYyZyDBw7YwNgNUPWw+AcA+nYplw=="
))
interpreter = Interpreter(model_content=model, experimental_op_resolver_type=OpResolverType.BUILTIN_WITHOUT_DEFAULT_DELEGATES,
                          num_threads=1)
interpreter.allocate_tensors()
feeds = {"a": a, "b": b}
for detail in interpreter.get_input_details():
    interpreter.set_tensor(detail["index"], np.asarray(feeds[detail["name"]], order="C"))
interpreter.invoke()
got = interpreter.get_tensor(interpreter.get_output_details()[0]["index"])
got = got.astype(np.int64)
assert got.shape == expected.shape, f"shape {got.shape}, right is {expected.shape}"
wrong = np.abs(got - np.clip(steps + z_y, -128, 127)) > 0.501
print("got     ", got.ravel().tolist())
print("differs" if wrong.any() else "agrees")
sys.exit(int(wrong.any()))
