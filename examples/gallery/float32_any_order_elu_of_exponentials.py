"""float32_any_order: elu_of_exponentials

MNN's Elu of small negative numbers has the error of exp(x) - 1 in float32, alpha * 1.4e-7, however small the result
is
Severity: off by one. Seen in mnn 3.6.1.
Cause: alpha * (exp(x) - 1), where the difference cancels.
Case: elu(x: [2]) alpha=1.0 channels_first, data random, found by generated cases of quantizer.
"""

import sys

import MNN
import MNN.expr as F
import numpy as np

x = np.array([-87, 19], np.int8)
s_x, z_x = 7.843136984320154e-08, -1
s_y, z_y = 7.843136984320154e-08, -1

# Right: the value of the codes in integers and float64, rounded once.
X = s_x * (x.astype(np.int64) - z_x)
real = np.where(X < 0, 1.0 * np.expm1(X), X)
steps = real / s_y
expected = np.clip(np.rint(steps) + z_y, -128, 127).astype(np.int64)

print(f"MNN {MNN.version()}, numpy {np.__version__}")
print("expected", expected.ravel().tolist(), flush=True)
x_real = np.float32(s_x) * (x.astype(np.int64) - z_x).astype(np.float32)
x = F.const(x_real, [2], F.NCHW, F.float)
y = np.array(F.elu(x, 1.0).read()).reshape([2])
print("float   ", y.ravel()[:8])
got = np.clip(np.rint(y / np.float32(s_y)) + z_y, -128, 127)
got = got.astype(np.int64)
assert got.shape == expected.shape, f"shape {got.shape}, right is {expected.shape}"
wrong = got != expected
print("got     ", got.ravel().tolist())
print("differs" if wrong.any() else "agrees")
sys.exit(int(wrong.any()))
