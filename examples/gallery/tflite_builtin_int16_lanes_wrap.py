"""tflite_builtin: int16_lanes_wrap

a number of output codes beyond 16 bits wraps before it saturates, or with its zero point, in whole vectors of the
optimized kernels: a large sum or product comes out with the other sign (vmovn_s32, vaddq_s16; LiteRT 2.3)
Severity: wrong. Seen in litert builtin.
Cause: optimized ADD and MUL narrow to 16 bits without saturation (vmovn_s32) and add the zero point in 16 bits
(vaddq_s16).
Case: mul(a: [1, 4, 4], b: [1, 4, 4]) channels_first then relu6 tiles=d01xd11, data scale_spread, found by generated
cases of quantizer.
"""

from importlib.metadata import version
import base64
import sys
import zlib

import numpy as np
from ai_edge_litert.interpreter import Interpreter, OpResolverType

a = np.array([[[-8, -4, -93, 52], [-111, -74, 26, 119], [-57, -65, -41, -22], [51, -58, -98, -85]]], np.int8)
s_a, z_a = 0.0035596659872680902, 63
b = np.array([[[123, 36, -42, -52], [32, -128, -35, -112], [68, 127, 15, 87], [-19, 54, -41, -74]]], np.int8)
s_b, z_b = 2011.1058349609375, 63
s_y, z_y = 0.03529411926865578, -128

# Right: the value of the codes in integers and float64, rounded once.
A = s_a * (a.astype(np.int64) - z_a)
B = s_b * (b.astype(np.int64) - z_b)
real = A * B
real = np.clip(real, 0, 6)
steps = real / s_y
expected = np.clip(np.sign(steps) * np.floor(np.abs(steps) + 0.5) + z_y, -128, 127).astype(np.int64)

print(f"ai-edge-litert {version('ai-edge-litert')}, numpy {np.__version__}")
print("expected", expected.ravel().tolist(), flush=True)
model = zlib.decompress(base64.b64decode(
    "eNqTYGBgCHHzMWZg4GMQYWBh4GDgAYoIAHkMDMxADOExAOUYGBiBWAFKm0BpF7AaXrA6mG4mIBaCYh64qQJgOQkgVgFiHSA2AOsBQYhdFkAcAcQV"
    "UDMYoHYwQvkgugEsyscgCtQlAjWXDy7OwNABxHOAmBOLmilQNSD5DTjUrICqAckfQVLDAfYJRA0I7ADiA0B8BohFoe5nBPsHgkHsRGAICIBVg/Qz"
    "gEMDFCYLgHgJ1Bxs+pJw6KsB4hY8+ipx6IsB4hSoPmzhysDAxsAK1MOGZK6nZ6Y1iLZHUp+c/NsFxkYWnzhBwBbGbvgPAVBpBgBfPiEc"
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
