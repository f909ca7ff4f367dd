"""tflite_builtin: mean_zero_point_rounded_early

the optimized MEAN over an image brings the input's zero point to output codes and rounds it before it adds the mean:
a mean may be half a code beside (LiteRT 2.3)
Severity: off by one. Seen in litert builtin.
Cause: the input's zero point is brought to output codes and rounded before the mean is added.
Case: global_avg_pool2d(x: [1, 1, 1, 1]) channels_first, data random, found by generated cases of quantizer.
"""

from importlib.metadata import version
import base64
import sys
import zlib

import numpy as np
from ai_edge_litert.interpreter import Interpreter, OpResolverType

x = np.array([[[[8]]]], np.int8)
s_x, z_x = 0.004811261780560017, 109
s_y, z_y = 0.05585785582661629, 35

# Right: the value of the codes in integers and float64, rounded once.
X = s_x * (x.astype(np.int64) - z_x)
real = X.mean((2, 3), keepdims=True)
steps = real / s_y
expected = np.clip(np.sign(steps) * np.floor(np.abs(steps) + 0.5) + z_y, -128, 127).astype(np.int64)

print(f"ai-edge-litert {version('ai-edge-litert')}, numpy {np.__version__}")
print("expected", expected.ravel().tolist(), flush=True)
model = zlib.decompress(base64.b64decode(
    "eNqTYGBgCHHzMWZg4GMQYWBh4GDgAYoIAHkMDMxADOExAOUYGBiBWAVKWwAxExB7AHEAWB0vWC3MBJCcBhTzwE0WAMuBxEygZtiA9YAgCLABVbEA"
    "SYg8M9T8DCBugdrLAKWZoPQEBgTgQJID+UcUaJYI1F6Qf2qg6jqAeA4Qc4LdJghUJQBWBXLbFKgZU8DmYJrRATUDJL8CbAZEDQfYlxA1DFDzlwDx"
    "BiCWBvsRYi46rmAQAocvJOQYwC4SApINSHbB/AQyI7EitZgBj3mVOMyDxRMDPHwQepigYc8KDXuY+Knlc61h6nKR9JieTrGFsZUZUAEAJbgYaA=="
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
print("got     ", got.ravel().tolist())
print("differs" if wrong.any() else "agrees")
sys.exit(int(wrong.any()))
