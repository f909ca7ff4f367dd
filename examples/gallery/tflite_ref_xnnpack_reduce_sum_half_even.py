"""tflite_ref: xnnpack_reduce_sum_half_even

the delegate rounds a float32 sum half to even together with the zero point, LiteRT's own kernel away from zero before
it (LiteRT 2.3)
Severity: design. Seen in litert xnnpack 2.3.0.
See also https://github.com/google-ai-edge/LiteRT/issues/7441
Case: reduce_sum(x: [1, 1, 4]) axes=[0] keepdims=True channels_first, data ties, found by generated cases of
quantizer.
"""

from importlib.metadata import version
import base64
import sys
import zlib

import numpy as np
from ai_edge_litert.interpreter import Interpreter, OpResolverType

x = np.array([[[30, 29, 20, 31]]], np.int8)
s_x, z_x = 2.0, 26
s_y, z_y = 4.0, -5

# Right: the value of the codes in integers and float64, rounded once.
X = s_x * (x.astype(np.int64) - z_x)
real = X.sum((0,), keepdims=True)
steps = real / s_y
expected = np.clip(np.sign(steps) * np.floor(np.abs(steps) + 0.5) + z_y, -128, 127).astype(np.int64)

print(f"ai-edge-litert {version('ai-edge-litert')}, numpy {np.__version__}")
print("expected", expected.ravel().tolist(), flush=True)
model = zlib.decompress(base64.b64decode(
    "eNp1UDGPAWEQfbv2LiTIEhKhVehdobhCcRG5KBT+gIRfoCFRKJQKhUKhuNJ/VLg3871FiNm8nf123vdm5jUATAajLlBGDQnyKPJPyhOQI8IJrAER"
    "0VbuETExJMbOKzk3U7Dar1C8Kade6xBf0vj2O/ZYfJKV8B3q1v+HmBEb9YVyrLzDPZLbVxl1nmrqabusVdkSR6Lgc1XISp1lc+2luXf9V42tNKzn"
    "n2sETt43DByLA3EizkRLe0RCorxE1X0NjsGnqWrOzcOe2Z3pcr7AG63VGy3zbiSt+Ekzlt8f8ju6+9u33Hzgc6J+9n25hsic/gcc6Rza"
))
interpreter = Interpreter(model_content=model, experimental_op_resolver_type=OpResolverType.BUILTIN,
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
