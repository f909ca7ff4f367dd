"""xnnpack: fully_connected_int16_sums_wrap

FULLY_CONNECTED on int16 without a bias goes to ruy, which adds up in 32 bits that wrap, where the kernel for a bias
of 64 bits does not: 517 products can leave them (LiteRT 2.3)
Severity: wrong. Seen in litert xnnpack.
Cause: ruy accumulates int16 products in int32.
Case: fully_connected(x: [1, 520], weight: [1, 520]) channels_first, data accumulator_limit, found by generated cases
of quantizer.
"""

from importlib.metadata import version
import base64
import sys
import zlib

import numpy as np
from ai_edge_litert.interpreter import Interpreter, OpResolverType

x = np.full([1, 520], 32767, np.int16)
s_x, z_x = 3.051804378628731e-05, 0
weight = np.full([1, 520], 127, np.int8)
s_weight, z_weight = np.array([0.007874015718698502]), np.array([0])
s_y, z_y = 0.018310826271772385, 0

# Right: the value of the codes in integers and float64, rounded once.
sums = (x.astype(np.int64) - z_x) @ (weight.astype(np.int64)).T
real = sums * (s_x * s_weight)
steps = real / s_y
expected = np.clip(np.sign(steps) * np.floor(np.abs(steps) + 0.5) + z_y, -32768, 32767).astype(np.int64)

print(f"ai-edge-litert {version('ai-edge-litert')}, numpy {np.__version__}")
print("expected", expected.ravel().tolist(), flush=True)
model = zlib.decompress(base64.b64decode(
    "eNrtU72OAVEYPXMNRoKIkHiALba3hUItCoXCIxA22VLCVqtQTKnYiAdQKBQKD+ABvBPnu/e7kwnjDZzJuX/fXyY5pwVg1Bu0gSoaCBGhzJcab0CO"
    "dDcwBgTkh+4d0pB9cmjzKjbXdyilWE4612zsk/zSHl1bI5+gwKyQq4vL/D6HzMjYuLnQ+Ub3f4MEEc9/b7xBiJ6b1FJDdSd6XqlO1uSOLGbkbLyu"
    "yJPV73POQfscyUuqT2SV7nIEZ41fRZspzUaq5SXq1lvONbBOqXPda2881IgvFpPv6Wwukexa+cf4odbz90XNmPzRmlzKYzfCe02m59WbPr5yFk58"
    "6c+hCbpZ71tsn97vCdogOg=="
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
wrong = np.abs(got - np.clip(steps + z_y, -32768, 32767)) > 0.501
print("got     ", got.ravel().tolist())
print("differs" if wrong.any() else "agrees")
sys.exit(int(wrong.any()))
