"""tflite_builtin: quantize_overflows_int32

QUANTIZE converts what is left behind whole vectors to int32 without saturation: from 2**31 steps on x86-64 gives the
smallest integer, and a large positive number the smallest code (LiteRT 2.3)
Severity: wrong. Seen in litert builtin 2.3.0.
Cause: a float32 number of steps is converted to int32 without saturation (cvttss2si gives the smallest integer).
Case: quantize(x: [1, 5, 4, 1]) channels_first tiles=d02xd13xd23xd32, data corners, found by generated cases of
quantizer.
"""

from importlib.metadata import version
import base64
import sys
import zlib

import numpy as np
from ai_edge_litert.interpreter import Interpreter, OpResolverType

x = np.array([[[[-1.9519806], [0.54655457], [0.54655457], [-1.9519806]], [[0.54655457], [0.54655457], [0.54655457],
    [-1.9519806]], [[-1.9519806], [-1.9519806], [-1.9519806], [0.54655457]], [[-1.9519806], [0.54655457],
    [-1.9519806], [0.54655457]], [[0.54655457], [0.54655457], [0.54655457], [-1.9519806]]]], np.float32)
s_y, z_y = 6.570189531318604e-11, 71

# Right: the value of the codes in integers and float64, rounded once.
real = x.astype(np.float64)
steps = real / s_y
expected = np.clip(np.rint(steps) + z_y, -128, 127).astype(np.int64)

print(f"ai-edge-litert {version('ai-edge-litert')}, numpy {np.__version__}")
print("expected", expected.ravel()[:16].tolist(), flush=True)
model = zlib.decompress(base64.b64decode(
    "eNqTYGBgCHHzMWZg4GMQYWBh4GDgAYoIAHkMDMxADOExAOUYGBiBWAFKm0BpF7AaXrA6mG4mIC6CYh64qQJgOQmoGSpArAHWA4IQPTpA7AE1lwFK"
    "w3AI2CxBoFoBsGkgsyKg6lLAJB+DKFBWBGoXH1QPCCQAcQkQc0LVcIBdBVEDAhlAnANVEwl2E8ROViQ2CFfgkatkEAKHEyQUGMCuFULyJwMWf8H8"
    "DmI/rJqgB6LdGVABACZeDgA="
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
wrong = np.abs(got - np.clip(steps + z_y, -128, 127)) > 0.501
at = np.flatnonzero(wrong)[:8]
print("at element ", at.tolist())
print("expected is", expected.ravel()[at].tolist())
print("got         ", got.ravel()[at].tolist())
print("differs" if wrong.any() else "agrees")
sys.exit(int(wrong.any()))
