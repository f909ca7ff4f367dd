"""ncnn's quotient of a nonzero number and 0 is NaN instead of infinity

Severity: wrong. Seen in ncnn 1.0.20261020.
See also https://github.com/Tencent/ncnn/issues/1284
Case: div(a: [2, 128], b: [128]) channels_first, data every_code, found by generated cases of quantizer.
"""

import sys

import ncnn
import numpy as np

np.seterr(all="ignore")  # an infinity saturates
a = np.array([[0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0,
    0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0,
    0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0,
    0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0], [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0,
    0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0,
    0, 0, 0, 0, 0, 0, 0, 64, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0,
    0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]], np.int8)
s_a, z_a = 0.0235294122248888, 0
b = np.full([128], 0, np.int8)
s_b, z_b = 0.01568627543747425, 0
s_y, z_y = 0.0235294122248888, 0

# Right: the value of the codes in integers and float64, rounded once.
A = s_a * (a.astype(np.int64) - z_a)
B = s_b * (b.astype(np.int64) - z_b)
real = A / B
steps = real / s_y
expected = np.clip(np.rint(steps) + z_y, -128, 127).astype(np.int64)

print(f"ncnn {ncnn.__version__}, numpy {np.__version__}")
print("expected", expected.ravel()[:16].tolist(), flush=True)
net = ncnn.Net()
net.opt.num_threads = 1
rows = ['7767517', '3 3', 'Input a 0 1 a', 'Input b 0 1 b', 'BinaryOp one 2 1 a b y 0=3']
net.load_param_mem("\n".join(rows) + "\n")
net.load_model_mem(bytes(4))
extractor = net.create_extractor()
a_real = np.float32(s_a) * (a.astype(np.int64) - z_a).astype(np.float32)
extractor.input("a", ncnn.Mat(a_real.reshape([2, 128])).clone())
b_real = np.float32(s_b) * (b.astype(np.int64) - z_b).astype(np.float32)
extractor.input("b", ncnn.Mat(b_real.reshape([1, 128])).clone())
y = np.array(extractor.extract('y')[1]).reshape([2, 128])
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
