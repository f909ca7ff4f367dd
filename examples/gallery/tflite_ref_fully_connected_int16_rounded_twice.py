"""tflite_ref: fully_connected_int16_rounded_twice

FULLY_CONNECTED on int16 without a bias goes to ruy, whose product is rounded twice, where with a bias and in the
reference kernel a float64 product is rounded once (LiteRT 2.3)
Severity: off by one. Seen in litert builtin 2.3.0.
Cause: ruy's fixed-point multiply rounds in the high multiply and in the shift.
See also https://github.com/tensorflow/tensorflow/issues/25087
Case: fully_connected(x: [1, 5], weight: [1, 5]) channels_first, data ties, found by generated cases of quantizer.
"""

from importlib.metadata import version
import base64
import sys
import zlib

import numpy as np
from ai_edge_litert.interpreter import Interpreter, OpResolverType

x = np.array([[0, 0, 0, 0, -1]], np.int16)
s_x, z_x = 4.0, 0
weight = np.array([[127, 0, 0, 0, -1]], np.int8)
s_weight, z_weight = np.array([0.001953125]), np.array([0])
s_y, z_y = 0.03125, 0

# Right: the value of the codes in integers and float64, rounded once.
sums = (x.astype(np.int64) - z_x) @ (weight.astype(np.int64)).T
real = sums * (s_x * s_weight)
steps = real / s_y
expected = np.clip(np.rint(steps) + z_y, -32768, 32767).astype(np.int64)

print(f"ai-edge-litert {version('ai-edge-litert')}, numpy {np.__version__}")
print("expected", expected.ravel().tolist(), flush=True)
model = zlib.decompress(base64.b64decode(
    "eNqTYGBgCHHzMWZg4GMQYWBh4GDgAYoIAHkMDMxADOExAOUYGBiBWAVKWwAxExB7AHEAWB0vWC3MBE4kzAM3WQAspwHEJlAzbMB6QBAE2ICqWIAk"
    "RB5kvwsQpwBxC9ReBijNBKUnMCAAKxDXA/F/oOtFgeaIQO0E+aUBqgZkzgwgZseiZgLUzClAvAHsdkw1K6DmrAHiA0jmcIB9CVEDAlug8meAmAPJ"
    "vaxQuoJBCByukBBjAIeSEJBcgmQHsh5QmJSnZqZnlIBksOutgfoPWS8MV+LQkwDEGVA9zEjh+x8IYOEMsp0VGi8M8HhocGBECnso2xqJjSxuiy4O"
    "AwC6aR5L"
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
wrong = got != expected
print("got     ", got.ravel().tolist())
print("differs" if wrong.any() else "agrees")
sys.exit(int(wrong.any()))
