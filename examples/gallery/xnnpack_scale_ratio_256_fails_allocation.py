"""xnnpack: scale_ratio_256_fails_allocation

XNNPACK takes no ratio of scales of 256 and more; the delegate claims the node all the same, so that allocate_tensors
fails where the kernel without a delegate would run (LiteRT 2.3)
Severity: wrong. Seen in litert xnnpack 2.3.0.
Cause: the delegate claims a node whose ratio of scales XNNPACK refuses when it creates the operator.
Case: conv2d(x: [1, 1, 1, 1], weight: [1, 1, 1, 1]) dilation=[1, 1] groups=1 padding=[0, 0, 0, 0] stride=[1, 1]
channels_first, data random, found by generated cases of quantizer.
"""

from importlib.metadata import version
import base64
import sys
import zlib

import numpy as np
from ai_edge_litert.interpreter import Interpreter, OpResolverType

x = np.array([[[[22]]]], np.int8)
s_x, z_x = 0.007843137718737125, 0
weight = np.array([[[[-127]]]], np.int8)
s_weight, z_weight = np.array([0.00271426048129797]), np.array([0])
s_y, z_y = 7.843136984320154e-08, -1

# Right: the value of the codes in integers and float64, rounded once.
X, W = x.astype(np.int64) - z_x, weight.astype(np.int64)
sums = np.einsum("ncyx,kcij->nkyx", X, W)
real = sums * (s_x * s_weight.reshape([1, -1, 1, 1]))
steps = real / s_y
expected = np.clip(np.rint(steps) + z_y, -128, 127).astype(np.int64)

print(f"ai-edge-litert {version('ai-edge-litert')}, numpy {np.__version__}")
print("expected", expected.ravel().tolist(), flush=True)
model = zlib.decompress(base64.b64decode(
    "eNqTYGBgCHHzMWZg4GMQYWBh4GDgAYoIAHkMDMxADOExAOUYGBiBWANK20DlfUD6gTgBrJYXrB5mCitUDcQcmOkCYDkLIPaA6g8A6wFBEGADqmIB"
    "kgwMDlj4LFD1BUA8AYg3QN3DAKWZofQeKN3IgAAscBYfgyiQJwJ1D8ivS6AyIPOOADEnFjUwM08A8RMcau4AMROU/gJmY6p5A7XrByhcGBHmcIBD"
    "CaIG5iGQvAIjxF4WqP3ouIJBCBxHkJBnAIe2EFQ/CyPC7+j6QGFanpqZnlECUoHdjAtAfAMpfGHuSMpMLMalZws0rBjwuLkSh15QnM6A6mVGspcJ"
    "KX4FGMTA4ckCDDUBcKhitwMc/w0MNoxIaQCcNh4aWjMgpRsYO3DKJnNs4lJ5K4xh7P9QAJMHAB2SLjU="
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
wrong = np.abs(got - np.clip(steps + z_y, -128, 127)) > 0.501
print("got     ", got.ravel().tolist())
print("differs" if wrong.any() else "agrees")
sys.exit(int(wrong.any()))
