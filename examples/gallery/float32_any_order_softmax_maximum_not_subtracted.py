"""float32_any_order: softmax_maximum_not_subtracted

MNN's softmax along an axis followed by more than eight columns does not subtract the largest operand: 200 and 100
give 0.5 and 0.5, not 1 and 0
Severity: wrong. Seen in mnn 3.6.1.
Cause: the exponentials of an outer axis are taken of the operands themselves, and are cut at exp(87).
Case: softmax(x: [2, 2, 5]) axis=0 channels_first, data random, found by generated cases of quantizer.
"""

import sys

import MNN
import MNN.expr as F
import numpy as np

x = np.array([[[-56, -56, -56, -56, -56], [-56, -56, -56, -19, -56]], [[-56, -56, -56, -56, -56], [-56, -56, -56, 118,
    -56]]], np.int8)
s_x, z_x = 8390664.0, -56
s_y, z_y = 0.003921568859368563, -128

# Right: the value of the codes in integers and float64, rounded once.
X = s_x * (x.astype(np.int64) - z_x)
powers = np.exp(X - X.max(0, keepdims=True))
real = powers / powers.sum(0, keepdims=True)
steps = real / s_y
expected = np.clip(np.rint(steps) + z_y, -128, 127).astype(np.int64)

print(f"MNN {MNN.version()}, numpy {np.__version__}")
print("expected", expected.ravel()[:16].tolist(), flush=True)
x_real = np.float32(s_x) * (x.astype(np.int64) - z_x).astype(np.float32)
x = F.const(x_real, [2, 2, 5], F.NCHW, F.float)
y = np.array(F.softmax(x, 0).read()).reshape([2, 2, 5])
print("float   ", y.ravel()[:8])
got = np.clip(np.rint(y / np.float32(s_y)) + z_y, -128, 127)
got = got.astype(np.int64)
assert got.shape == expected.shape, f"shape {got.shape}, right is {expected.shape}"
wrong = np.abs(got - np.clip(steps + z_y, -128, 127)) > 0.501
at = np.flatnonzero(wrong)[:8]
print("at element ", at.tolist())
print("expected is", expected.ravel()[at].tolist())
print("got         ", got.ravel()[at].tolist())
print("differs" if wrong.any() else "agrees")
sys.exit(int(wrong.any()))
