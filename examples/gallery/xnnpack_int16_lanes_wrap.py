"""xnnpack: int16_lanes_wrap

a number of output codes beyond 16 bits wraps before it saturates, or with its zero point, in whole vectors of the
optimized kernels: a large sum or product comes out with the other sign (vmovn_s32, vaddq_s16; LiteRT 2.3); the
delegate leaves ratios of 256 and more to them
Severity: wrong. Seen in litert xnnpack.
Cause: optimized ADD and MUL narrow to 16 bits without saturation (vmovn_s32) and add the zero point in 16 bits
(vaddq_s16).
Case: mul(a: [2, 3, 3], b: [2, 3, 3]) channels_first then relu6 tiles=d03xd14xd24, data scale_spread, found by
generated cases of quantizer.
"""

from importlib.metadata import version
import base64
import sys
import zlib

import numpy as np
from ai_edge_litert.interpreter import Interpreter, OpResolverType

a = np.array([[[116, -18, -23], [116, 105, -47], [-39, -93, 103]], [[81, -128, -69], [-119, 79, 59], [-18, -84, 13]]],
    np.int8)
s_a, z_a = 0.014954810030758381, 7
b = np.array([[[9, -108, 11], [-54, 37, 42], [-1, 107, 122]], [[-96, 4, 37], [-4, 29, 33], [-65, 8, 58]]], np.int8)
s_b, z_b = 4979.451171875, 111
s_y, z_y = 0.0235294122248888, -128

# Right: the value of the codes in integers and float64, rounded once.
A = s_a * (a.astype(np.int64) - z_a)
B = s_b * (b.astype(np.int64) - z_b)
real = A * B
real = np.clip(real, 0, 6)
steps = real / s_y
expected = np.clip(np.sign(steps) * np.floor(np.abs(steps) + 0.5) + z_y, -128, 127).astype(np.int64)

print(f"ai-edge-litert {version('ai-edge-litert')}, numpy {np.__version__}")
print("expected", expected.ravel()[:16].tolist(), flush=True)
model = zlib.decompress(base64.b64decode(
    "eNp9kK0OwkAQhKeF8pNA05CSIBFIBAkIBBJQSAQCA8GjSCBBVCB4AFwrEAgkElkSJO8Ec9dtU9FyzZe9253Zu24LwHw66wM2XBRRQY0ZhyegQKIT"
    "WAMM0pY4kDjWmrrWxW6TNIRa0tXRtRbpkC7paY/6oruGZEH20gNyhyFnFT2dtdGky5W+dpIHziQg1QzNRTSq/sjR3EWj6u+UpqL/JNKo9SQh+ZCm"
    "vN+UWJC3rjgBR6uVH3oaaiZXcpM+Wb51ju9ITn98hxzfkmzElzVXoASLnlKql2XtRiqWU/rA9yfxfpvKv8JwFO+9b7SkjB9UIyG3"
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
wrong = np.abs(got - np.clip(steps + z_y, -128, 127)) > 0.501
at = np.flatnonzero(wrong)[:8]
print("at element ", at.tolist())
print("expected is", expected.ravel()[at].tolist())
print("got         ", got.ravel()[at].tolist())
print("differs" if wrong.any() else "agrees")
sys.exit(int(wrong.any()))
