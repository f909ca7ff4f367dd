"""tflite_ref: mul_left_shift_wraps

MUL's multiplier of 1 and more shifts the product of two codes to the left first, in 32 bits that wrap: a large
product of int16 codes comes out with the other sign (MultiplyByQuantizedMultiplier, LiteRT 2.3)
Severity: wrong. Seen in litert reference.
Cause: MultiplyByQuantizedMultiplier computes x * (1 << left_shift) in int32.
See also https://github.com/tensorflow/tensorflow/pull/61698
Case: mul(a: [1], b: [1]) channels_first, data scale_spread, found by generated cases of quantizer.
"""

from importlib.metadata import version
import base64
import sys
import zlib

import numpy as np
from ai_edge_litert.interpreter import Interpreter, OpResolverType

a = np.array([-29874], np.int16)
s_a, z_a = 0.0003955238207709044, 0
b = np.array([5726], np.int16)
s_b, z_b = 25.173723220825195, 0
s_y, z_y = 0.00016479744226671755, 0

# Right: the value of the codes in integers and float64, rounded once.
A = s_a * (a.astype(np.int64) - z_a)
B = s_b * (b.astype(np.int64) - z_b)
real = A * B
steps = real / s_y
expected = np.clip(np.sign(steps) * np.floor(np.abs(steps) + 0.5) + z_y, -32768, 32767).astype(np.int64)

print(f"ai-edge-litert {version('ai-edge-litert')}, numpy {np.__version__}")
print("expected", expected.ravel().tolist(), flush=True)
model = zlib.decompress(base64.b64decode(
    "eNqTYGBgCHHzMWZg4GMQYWBh4GDgAYoIAHkMDMxADOExAOUYGBiBWAFKm0BpF7AaXrA6mG4mIBaCYh64qQJgOQkgVgFiHSA2AOsBQYhdFkAcAcQV"
    "UDMYoHYwQvkgugEsyscgCtQlAjWXDy4OoacAMTsWNT1QNSB6AQ41M6BqQPQaJDUcYJ9A1DBA9a8A4i1ALIrkThBOBPpcAKwKpI8BHAqgsJgAdRsD"
    "mvokHOpLgLgGi/pKHOpjgDgFqh5b+DEwsDGwAvWwIcn5x523ZGRAABD7ZPJJRxgbWbzqrI4lujgAk2MY/A=="
))
interpreter = Interpreter(model_content=model, experimental_op_resolver_type=OpResolverType.BUILTIN_REF,
                          num_threads=1)
interpreter.allocate_tensors()
feeds = {"a": a, "b": b}
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
