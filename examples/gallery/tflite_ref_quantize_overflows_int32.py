"""tflite_ref: quantize_overflows_int32

QUANTIZE converts a float32 number of steps to int32 without saturation: from 2**31 on x86-64 gives the smallest
integer, and a large positive number the smallest code (LiteRT 2.3)
Severity: wrong. Seen in litert reference 2.3.0.
Cause: a float32 number of steps is converted to int32 without saturation (cvttss2si gives the smallest integer).
Case: quantize(x: [1]) channels_first, data random, found by generated cases of quantizer.
"""

from importlib.metadata import version
import base64
import sys
import zlib

import numpy as np
from ai_edge_litert.interpreter import Interpreter, OpResolverType

x = np.array([-152039840.0], np.float32)
s_y, z_y = 0.009803921915590763, -26

# Right: the value of the codes in integers and float64, rounded once.
real = x.astype(np.float64)
steps = real / s_y
expected = np.clip(np.rint(steps) + z_y, -128, 127).astype(np.int64)

print(f"ai-edge-litert {version('ai-edge-litert')}, numpy {np.__version__}")
print("expected", expected.ravel().tolist(), flush=True)
model = zlib.decompress(base64.b64decode(
    "eNptUDkOwjAQHI4iSMEyUZBSpqCgoIOSEiEKCooUIOUVqcJv4HN8A/YYIxRhazRe7+x41xWA5njeAgElpsiQy02UCJgIPILkgJGgJu/IB9PMTZeq"
    "x4KOyL+u0XIVPVaCtdXo9pqN4ERfkBMa81qINpqbel2pcw5YSrbkW4FeILeCGTWZdeUaXRf6q+Y2eLcfxHcU9h8+Layr4mce/Ok/zajn56PeK7/e"
    "vj6CHBRy"
))
interpreter = Interpreter(model_content=model, experimental_op_resolver_type=OpResolverType.BUILTIN_REF,
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
