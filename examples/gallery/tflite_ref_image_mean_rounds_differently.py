"""tflite_ref: image_mean_rounds_differently

the optimized MEAN over an image rounds both zero points to one whole code first and the mean of sixteen channels at a
time half up (LiteRT 2.3)
Severity: design. Seen in litert builtin 2.3.0.
Cause: the input's zero point is brought to output codes and rounded before the mean is added.
Case: global_avg_pool2d(x: [1, 1, 1, 1]) channels_last, data ties, found by generated cases of quantizer.
"""

from importlib.metadata import version
import base64
import sys
import zlib

import numpy as np
from ai_edge_litert.interpreter import Interpreter, OpResolverType

x = np.array([[[[94]]]], np.int8)
s_x, z_x = 0.125, 91
s_y, z_y = 0.25, 7

# Right: the value of the codes in integers and float64, rounded once.
X = s_x * (x.astype(np.int64) - z_x)
real = X.mean((2, 3), keepdims=True)
steps = real / s_y
expected = np.clip(np.rint(steps) + z_y, -128, 127).astype(np.int64)

print(f"ai-edge-litert {version('ai-edge-litert')}, numpy {np.__version__}")
print("expected", expected.ravel().tolist(), flush=True)
model = zlib.decompress(base64.b64decode(
    "eNp9kb0PAUEQxZ/zdRLkXE4i0Sr0FApRikKh0KkUEr3mJAqFQqlQKhVKf6I3s3MfCHt5u9mdt7+dmesAWE7nA6CJCCX4qPMk4A4oUm4HxoAC1bN1"
    "RHnUjFqor6HehCCxvqmekgONydnQGGO9I5+MCl0lzi5eNP6WOtm7sNWz9YJs+LmY1NMmK7J3pZ6D+c7Ujappbi26AnVJbldjXJXzzTgbQ+IPZTiP"
    "r1U6D4x/p55UV2t03E/FCLW/rnPQjELOx9xbSU3CWMebHf7w9j94yX9C2p/sjme9L1vvC1mvJ4lvlbvD7NLzKt7HC6BxFUw="
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
