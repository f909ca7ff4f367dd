"""xnnpack: abort_on_large_scale_ratio

LiteRT ends the process if an input scale is at least 2**14 times the output scale (16 bits; 2**19 times for 8 bits):
the multiplier must be below 1 (QuantizeMultiplierSmallerThanOneExp, LiteRT 2.3)
Severity: memory. Seen in litert xnnpack 2.3.0.
Cause: ADD and SUB call QuantizeMultiplierSmallerThanOneExp, whose TFLITE_CHECK_LT(multiplier, 1) aborts.
See also https://github.com/tensorflow/tensorflow/issues/60815
See also https://github.com/tensorflow/tensorflow/pull/61698
Case: add(a: [1], b: [1]) channels_first then relu6, data scale_spread, found by generated cases of quantizer.
"""

from importlib.metadata import version
import base64
import sys
import zlib

import numpy as np
from ai_edge_litert.interpreter import Interpreter, OpResolverType

a = np.array([-14017], np.int16)
s_a, z_a = 8.879364941094536e-06, 0
b = np.array([30288], np.int16)
s_b, z_b = 6.501075744628906, 0
s_y, z_y = 0.00018310826271772385, 0

# Right: the value of the codes in integers and float64, rounded once.
A = s_a * (a.astype(np.int64) - z_a)
B = s_b * (b.astype(np.int64) - z_b)
real = A + B
real = np.clip(real, 0, 6)
steps = real / s_y
expected = np.clip(np.rint(steps) + z_y, -32768, 32767).astype(np.int64)

print(f"ai-edge-litert {version('ai-edge-litert')}, numpy {np.__version__}")
print("expected", expected.ravel().tolist(), flush=True)
for _ in range(20):  # what is read may change from run to run
    model = zlib.decompress(base64.b64decode(
        "eNqTYGBgCHHzMWZg4GMQYWBh4GDgAYoIAHkMDMxADOExAOUYGBiBWAFKm0BpF7AaXrA6mG4mBgTggZsqAJaTAGIVINYBYgOwHhCE2GUBxBFAXIFk"
        "BiMUM0HpBrAoH4MoUJcI1Fw+uDiEngLE7FjU9EDVgOgFONTMgKoB0WuQ1HCAfQJRwwDVvwKItwAxN5I7QTiRQQgcZpAQgYSCEJCcAHUbA5r6JBzq"
        "S4C4Bov6ShzqY4A4BaoeW/hxMLABdbCC9TBDxaf+EDFnRIovEPsCxwUHGBtZ/ACDgyW6OAA9dBg9"
    ))
    interpreter = Interpreter(model_content=model, experimental_op_resolver_type=OpResolverType.BUILTIN,
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
    if wrong.any():
        break
print("got     ", got.ravel().tolist())
print("differs" if wrong.any() else "agrees")
sys.exit(int(wrong.any()))
