"""MNN's Softplus is 87 for every operand above 87, and 0 for every operand below -17

Severity: wrong. Seen in mnn 3.6.1.
Cause: log(1 + exp(x)), where exp is cut at 87.
Case: softplus(x: [2]) channels_first, data every_code, found by generated cases of quantizer.
"""

import sys

import MNN
import MNN.expr as F
import numpy as np

x = np.array([0, 127], np.int8)
s_x, z_x = 32.125492095947266, 0
s_y, z_y = 15.999754905700684, -128

# Right: the value of the codes in integers and float64, rounded once.
X = s_x * (x.astype(np.int64) - z_x)
real = np.logaddexp(0, X)
steps = real / s_y
expected = np.clip(np.rint(steps) + z_y, -128, 127).astype(np.int64)

print(f"MNN {MNN.version()}, numpy {np.__version__}")
print("expected", expected.ravel().tolist(), flush=True)
x_real = np.float32(s_x) * (x.astype(np.int64) - z_x).astype(np.float32)
x = F.const(x_real, [2], F.NCHW, F.float)
y = np.array(F.softplus(x).read()).reshape([2])
print("float   ", y.ravel()[:8])
got = np.clip(np.rint(y / np.float32(s_y)) + z_y, -128, 127)
got = got.astype(np.int64)
assert got.shape == expected.shape, f"shape {got.shape}, right is {expected.shape}"
wrong = np.abs(got - np.clip(steps + z_y, -128, 127)) > 0.501
print("got     ", got.ravel().tolist())
print("differs" if wrong.any() else "agrees")
sys.exit(int(wrong.any()))
