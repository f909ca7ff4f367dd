"""tflite_ref: micro_softmax_512_classes_abort

TensorFlow Lite Micro's SOFTMAX of 8 bits shifts like LiteRT's reference: the process ends if the sum of the
exponentials is 512 or more
Severity: memory. Seen in tflite_micro 0.dev20261023182759.
Cause: gemmlowp::RoundingDivideByPOT asserts an exponent below 32; the sum of exponentials has 12 integer bits.
See also https://github.com/tensorflow/tensorflow/pull/62851
Case: softmax(x: [1, 512]) axis=1 channels_first, data ties, found by generated cases of quantizer.
"""

from importlib.metadata import version
import base64
import sys
import zlib

import numpy as np
from tflite_micro.python.tflite_micro import runtime

x = np.full([1, 512], 0, np.int8)
s_x, z_x = 1.0, 0
s_y, z_y = 0.00390625, -128

# Right: the value of the codes in integers and float64, rounded once.
X = s_x * (x.astype(np.int64) - z_x)
powers = np.exp(X - X.max(1, keepdims=True))
real = powers / powers.sum(1, keepdims=True)
steps = real / s_y
expected = np.clip(np.rint(steps) + z_y, -128, 127).astype(np.int64)

print(f"tflite-micro {version('tflite-micro')}, numpy {np.__version__}")
print("expected", expected.ravel()[:16].tolist(), flush=True)
for _ in range(20):  # what is read may change from run to run
    model = zlib.decompress(base64.b64decode(
        "eNp1kKEPglAQxj+QOdyQMYYbNoPB6KbNoME5g8FANBiMBoMBNwPB4H+tH3cHezo99uN4977vePdyAMVmNwNiZAgQImIl4QroEF2Be4BHRpbnltei"
        "6YuucftkaERt10T2cusxJhPx1I96pmRvfWG54SCVGAOqM+sXt3XgSK6k90NzNs2FPBxNKKdTTR0luZOnaPRMchZfc4lU7kInhUyX2r9P1uPbc/vj"
        "WZGtM6c7L9ClNuC7jmrpfWTXUy2a7+ql8QbAWxav"
    ))
    interpreter = runtime.Interpreter.from_bytes(model, arena_size=1 << 24)
    for place, values in enumerate([x]):
        interpreter.set_input(np.asarray(values, order='C'), place)
    interpreter.invoke()
    got = interpreter.get_output(0)
    got = got.astype(np.int64)
    assert got.shape == expected.shape, f"shape {got.shape}, right is {expected.shape}"
    wrong = np.abs(got - np.clip(steps + z_y, -128, 127)) > 0.501
    if wrong.any():
        break
at = np.flatnonzero(wrong)[:8]
print("at element ", at.tolist())
print("expected is", expected.ravel()[at].tolist())
print("got         ", got.ravel()[at].tolist())
print("differs" if wrong.any() else "agrees")
sys.exit(int(wrong.any()))
