"""tflite_ref: sigmoid_tanh_approximated

under a scale of 2**-12 (tanh: or 2**-11) the optimized kernels take gemmlowp's function, up to 11 codes from the
reference kernels' table (LiteRT 2.3)
Severity: design. Seen in litert builtin 2.3.0.
See also https://github.com/tensorflow/tensorflow/issues/48202
Case: sigmoid(x: [2, 4]) channels_first, data random, found by generated cases of quantizer.
"""

from importlib.metadata import version
import base64
import sys
import zlib

import numpy as np
from ai_edge_litert.interpreter import Interpreter, OpResolverType

x = np.array([[8225, 12429, -1477, 19359], [-32768, 32730, -6221, 14725]], np.int16)
s_x, z_x = 0.000244140625, 0
s_y, z_y = 3.0517578125e-05, 0

# Right: what the arithmetic declared for tflite_ref gives, restated in integers.
expected = np.array([[28889, 31264, 13462, 32480], [11, 32757, 5887, 31892]], np.int64)

print(f"ai-edge-litert {version('ai-edge-litert')}, numpy {np.__version__}")
print("expected", expected.ravel().tolist(), flush=True)
model = zlib.decompress(base64.b64decode(
    "eNp1ULEKwjAUPKugFA2lVOjo4OAo6KDgKE4ODh06dnBwdHCom5/u5eUCoWjC8ZJ3dy/vpQbQXK47wKHCBDPMmSl4A8ZEuIEcMCJWinvFs2kWpovu"
    "DDC/My5WLYyrVWNNbMzjd/BsiZvqQjGitYzDkupK9Zz0fjXEg5j+0HTS3IneNDmZ0FUu7km81EdmfYV3e5Q2f5gONlGpd1t5h573H4//s1My23BG"
    "4HNMueR8GObj+gLF/Qxw"
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
