"""tflite_builtin: add_tail_rounds_differently

whole vectors of the optimized ADD round an operand once, or cut it, where elements beside them are rounded twice: the
code of a sum next to a tie depends on its place in the row (LiteRT 2.3)
Severity: off by one. Seen in litert builtin.
Cause: the vector body shifts an operand before it multiplies and rounds once, the scalar tail rounds twice.
Case: add(a: [16], b: [16]) channels_first tiles=d08, data ties, found by generated cases of quantizer.
"""

from importlib.metadata import version
import base64
import sys
import zlib

import numpy as np
from ai_edge_litert.interpreter import Interpreter, OpResolverType

a = np.array([46, 48, 52, 42, 46, 54, 41, 52, 50, 55, 44, 52, 50, 47, 52, 50], np.int8)
s_a, z_a = 3.5, 48
b = np.array([-8, 0, 3, 2, 0, -8, -8, -6, 4, -2, -5, -7, -7, 0, -2, -8], np.int8)
s_b, z_b = 5.5, -1
s_y, z_y = 2.0, 107

# Right: the same numbers computed in parts (d0 8): neither order is wrong alone.
expected = np.array([84, 110, 125, 105, 106, 98, 75, 100, 124, 117, 89, 98, 94, 108, 111, 91], np.int64)

print(f"ai-edge-litert {version('ai-edge-litert')}, numpy {np.__version__}")
print("expected", expected.ravel().tolist(), flush=True)
model = zlib.decompress(base64.b64decode(
    "eNp1kSsPwjAUhc94ZYSxLMtIJhFIBAkI5ARBIREIBBAcFgEJgh+AQCCQSAQCwf+Ds967R8jW5ey0p9/tujYEMJ/OhoCLADXYcJh4HAFVSkbgHGBR"
    "XfWR+sQwbcMl1RVkzUlX9cxcSPWoPjUwNfEj3xpTC+qQW8NSVdTPJnXRYVWg67ppLn6jmgXMRZnYHyXMXZnYXznGNn8iDLT+SX2olu7NU1/DN305"
    "ETkFn++r7g1//KaE31OnAv5Ywi+prfJF52ejwYq61kgOrCJL7yLL3lHS/2qTHGm+U/4HzIAd1w=="
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
wrong = got != expected
print("got     ", got.ravel().tolist())
print("differs" if wrong.any() else "agrees")
sys.exit(int(wrong.any()))
