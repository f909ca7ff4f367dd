"""ncnn's reciprocal of 0 is NaN instead of infinity

Severity: wrong. Seen in ncnn 1.0.20261020.
See also https://github.com/Tencent/ncnn/issues/1284
Case: reciprocal(x: [1]) channels_first, data zeros, found by generated cases of quantizer.
"""

import sys

import ncnn
import numpy as np

np.seterr(all="ignore")  # an infinity saturates
x = np.array([0], np.int8)
s_x, z_x = 0.0470588244497776, 0
s_y, z_y = 0.0235294122248888, 0

# Right: the value of the codes in integers and float64, rounded once.
X = s_x * (x.astype(np.int64) - z_x)
real = 1 / X
steps = real / s_y
expected = np.clip(np.rint(steps) + z_y, -128, 127).astype(np.int64)

print(f"ncnn {ncnn.__version__}, numpy {np.__version__}")
print("expected", expected.ravel().tolist(), flush=True)
net = ncnn.Net()
net.opt.num_threads = 1
rows = ['7767517', '2 2', 'Input x 0 1 x', 'UnaryOp one 1 1 x y 0=15']
net.load_param_mem("\n".join(rows) + "\n")
net.load_model_mem(bytes(4))
extractor = net.create_extractor()
x_real = np.float32(s_x) * (x.astype(np.int64) - z_x).astype(np.float32)
extractor.input("x", ncnn.Mat(x_real.reshape([1])).clone())
y = np.array(extractor.extract('y')[1]).reshape([1])
print("float   ", y.ravel()[:8])
got = np.clip(np.rint(y / np.float32(s_y)) + z_y, -128, 127)
got = got.astype(np.int64)
assert got.shape == expected.shape, f"shape {got.shape}, right is {expected.shape}"
wrong = np.abs(got - np.clip(steps + z_y, -128, 127)) > 0.501
print("got     ", got.ravel().tolist())
print("differs" if wrong.any() else "agrees")
sys.exit(int(wrong.any()))
