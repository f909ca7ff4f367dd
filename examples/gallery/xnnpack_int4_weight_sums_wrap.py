"""xnnpack: int4_weight_sums_wrap

the sum of a layer with 4-bit weights is kept in sixteenths, the bias included, so that 32 bits wrap from a sum of
2**27 on (XNNPACK's qc4w kernels, LiteRT 2.3)
Severity: wrong. Seen in litert xnnpack 2.3.0.
Cause: 4-bit weights are kept in the high half of a byte, so that sums are 16 times as large.
Kernels that show it: on processors with avx512_vnni.
Case: fully_connected(x: [1, 2], weight: [1, 2], bias: [1]) channels_first, data random, found by generated cases of
quantizer.
"""

from importlib.metadata import version
import base64
import sys
import zlib

import numpy as np
from ai_edge_litert.interpreter import Interpreter, OpResolverType

x = np.array([[-79, -21]], np.int8)
s_x, z_x = 0.007843137718737125, 0
weight = np.array([[1, 7]], np.int8)
s_weight, z_weight = np.array([0.057019613683223724]), np.array([0])
bias = np.array([827090798], np.int32)
s_bias, z_bias = np.array([0.0004472126893233508]), np.array([0])
s_y, z_y = 3137.2548828125, -1

# Right: the value of the codes in integers and float64, rounded once.
sums = (x.astype(np.int64) - z_x) @ (weight.astype(np.int64)).T
real = sums * (s_x * s_weight) + (s_bias * bias.astype(np.int64))
steps = real / s_y
expected = np.clip(np.rint(steps) + z_y, -128, 127).astype(np.int64)

print(f"ai-edge-litert {version('ai-edge-litert')}, numpy {np.__version__}")
print("expected", expected.ravel().tolist(), flush=True)
model = zlib.decompress(base64.b64decode(
    "eNqTYGBgCHHzMWZg4GMQYWBh4GDgAYoIAHkMDMxADOExAOUYGBiBWANK20DlfUD6gTgBrJYXrB5mCicS5oGbLgCWswBiD6j+ALAeEAQBNqAqFiDJ"
    "wOCAhc8CVV8AxBOAeAPUPQxQmhlK74HShQwIANKbl+5jCPKrKJAnAnUPyK9LoGpWQPVyYlGzBWrmDiC+AsSCWNScAWImKP0EzMZUcwdq1wMg/oJk"
    "Fwc4lCBqQOAFVB5kKQfUXEYkuoJBCBw3kBBnAIeyEJC8gWQHsh5QGJanZqZnlIBksOvdAPUfLDwZoeGWlJlYjEvPFCCeg2YfDFfi0FMBxA1QPcxI"
    "9jEhxSPIxazQuIfJNzYw2DAixSmIndabacuAlA5g7PvlryyxiYuIuLjC2P+hACYPAObfMaE="
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
