"""tflite_ref: xnnpack_rounds_once

the delegate rounds once: sums half up under factors of 21 bits, leaky rectifiers half up under 8 places, products and
means in float32 half to even (LiteRT 2.3)
Severity: design. Seen in litert xnnpack 2.3.0.
See also https://github.com/google-ai-edge/LiteRT/issues/7441
Case: sub(a: [1, 1], b: [1]) channels_first, data ties, found by generated cases of quantizer.
"""

from importlib.metadata import version
import base64
import sys
import zlib

import numpy as np
from ai_edge_litert.interpreter import Interpreter, OpResolverType

a = np.array([[38]], np.int8)
s_a, z_a = 0.5, 33
b = np.array([-53], np.int8)
s_b, z_b = 4.0, -54
s_y, z_y = 1.0, -6

# Right: the value of the codes in integers and float64, rounded once.
A = s_a * (a.astype(np.int64) - z_a)
B = s_b * (b.astype(np.int64) - z_b)
real = A - B
steps = real / s_y
expected = np.clip(np.rint(steps) + z_y, -128, 127).astype(np.int64)

print(f"ai-edge-litert {version('ai-edge-litert')}, numpy {np.__version__}")
print("expected", expected.ravel().tolist(), flush=True)
model = zlib.decompress(base64.b64decode(
    "eNp1kK0OwkAQhIfflAQa0kBSgYAEQ4IgAYErgqCQCAQGwkMUh+ABEAgEAoFAIpA8AY+Egbm9LSkNvebr9uZm7q7rA5hNpn3ARQ15OChTqXIG5Iid"
    "gWtAhjS1DrSOxVMRX5TOko5S/u5alTWftEmX9CRjHnvWkMxJqHtAz8jo3NStqC7qTNV0X/erAztyJKU/nr16TL2keE7qOZN7zOPIn1iPGVdyIw/S"
    "iN0vYglP+ma7AumEx/dB74eEf5XiD2P/ljxjk5JZkHUsk+yjgyITBc1YnSMwtfWjbUfR9/Nth+pBpL9U1xg+YMslkw=="
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
wrong = got != expected
print("got     ", got.ravel().tolist())
print("differs" if wrong.any() else "agrees")
sys.exit(int(wrong.any()))
