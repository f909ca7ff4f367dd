"""tflite_builtin: mean_tail_rounds_differently

the optimized MEAN over an image rounds sixteen channels at a time half up, the channels behind them away from zero:
the code of a channel depends on how many there are (LiteRT 2.3)
Severity: off by one. Seen in litert builtin.
Cause: the vector body rounds half up, the scalar tail half away from zero.
Case: global_avg_pool2d(x: [1, 16, 2, 3]) channels_first tiles=c3, data ties, found by generated cases of quantizer.
"""

from importlib.metadata import version
import base64
import sys
import zlib

import numpy as np
from ai_edge_litert.interpreter import Interpreter, OpResolverType

x = np.array([[[[-53, -32, -32], [-32, -32, -32]], [[-65, -32, -32], [-32, -32, -32]], [[-89, -32, -32], [-32, -32,
    -32]], [[-65, -32, -32], [-32, -32, -32]], [[19, -32, -32], [-32, -32, -32]], [[-95, -32, -32], [-32, -32, -32]],
    [[-83, -32, -32], [-32, -32, -32]], [[-59, -32, -32], [-32, -32, -32]], [[-53, -32, -32], [-32, -32, -32]],
    [[-101, -32, -32], [-32, -32, -32]], [[-101, -32, -32], [-32, -32, -32]], [[-23, -32, -32], [-32, -32, -32]],
    [[-119, -32, -32], [-32, -32, -32]], [[-17, -32, -32], [-32, -32, -32]], [[-5, -32, -32], [-32, -32, -32]], [[-47,
    -32, -32], [-32, -32, -32]]]], np.int8)
s_x, z_x = 0.0313725508749485, -32
s_y, z_y = 0.0313725508749485, -32

# Right: the same numbers computed in parts (c 3): neither order is wrong alone.
expected = np.array([[[[-36]], [[-38]], [[-42]], [[-38]], [[-24]], [[-43]], [[-41]], [[-37]], [[-36]], [[-44]],
    [[-44]], [[-31]], [[-47]], [[-30]], [[-28]], [[-35]]]], np.int64)

print(f"ai-edge-litert {version('ai-edge-litert')}, numpy {np.__version__}")
print("expected", expected.ravel().tolist(), flush=True)
model = zlib.decompress(base64.b64decode(
    "eNp1kTEPAUEQhZ875CTIuZxEolXoKRS0olAo/AGFRK8hUZAolAqlUqH0k/wT3szO3l0i9vJ2b2fefrs72wGwnM4HQBMpyohQZyTmDAgpNwNzQInq"
    "2TiiAmpGLdTXUK8nSK5vqmfkWHMSGxpjrGvkk1alq8ze5UPjb6iz7QsbAxuvyFtUyMl92mSltq/c52C+C3Wnanq2Fl2xuuRsN2PclPPLuBhD8k9l"
    "OE+kt3QeGP9Bvaiu3jE/W2g1lfkOif67ykFPlLA/Fvby64Sx2q23KPC8PG//h+ffCVl98rWB1b5itffx0xET73t/XPsX92/wBWrVJj0="
))
interpreter = Interpreter(model_content=model, experimental_op_resolver_type=OpResolverType.BUILTIN_WITHOUT_DEFAULT_DELEGATES,
                          num_threads=1)
interpreter.allocate_tensors()
feeds = {"x": np.moveaxis(x, 1, -1)}
for detail in interpreter.get_input_details():
    interpreter.set_tensor(detail["index"], np.asarray(feeds[detail["name"]], order="C"))
interpreter.invoke()
got = interpreter.get_tensor(interpreter.get_output_details()[0]["index"])
got = got.reshape([1, 16, 1, 1]).astype(np.int64)
assert got.shape == expected.shape, f"shape {got.shape}, right is {expected.shape}"
wrong = got != expected
print("got     ", got.ravel().tolist())
print("differs" if wrong.any() else "agrees")
sys.exit(int(wrong.any()))
