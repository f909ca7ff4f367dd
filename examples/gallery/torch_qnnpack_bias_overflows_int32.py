"""a bias whose code is 2**31 and more becomes the smallest one: the conversion to int32 overflows

Severity: wrong. Seen in torch qnnpack 2.13.0, 2.14.1, 2.15.0.
Case: conv2d(x: [1, 1, 1, 1], weight: [2, 1, 1, 1], bias: [2]) dilation=[1, 1] groups=1 padding=[0, 1, 0, 0]
stride=[1, 2] channels_first, data scale_spread, found by generated cases of quantizer.
"""

import sys

import numpy as np
import torch

x = np.array([[[[135]]]], np.uint8)
s_x, z_x = 0.02421491965651512, 135
weight = np.array([[[[127]]], [[[0]]]], np.int8)
s_weight, z_weight = np.array([8.992782213335104e-11, 1.0]), np.array([0, 0])
bias = np.array([2147483647, 0], np.int32)
s_bias, z_bias = np.array([2.177594909946734e-12, 0.02421491965651512]), np.array([0, 0])
s_y, z_y = 0.0014016071800142527, 0

# Right: the value of the codes in integers and float64, rounded once.
X = np.pad(x.astype(np.int64) - z_x, [(0, 0), (0, 0), (0, 0), (1, 0)])
windows = np.lib.stride_tricks.sliding_window_view(X, (1, 1), (2, 3))[:, :, ::1, ::2, ::1, ::1]
sums = np.einsum("ncyxij,kcij->nkyx", windows, weight.astype(np.int64))
real = sums * (s_x * s_weight.reshape([1, -1, 1, 1])) + (s_bias * bias.astype(np.int64)).reshape([1, -1, 1, 1])
steps = real / s_y
expected = np.clip(np.rint(steps) + z_y, 0, 255).astype(np.int64)

print(f"torch {torch.__version__}, numpy {np.__version__}")
print("expected", expected.ravel().tolist(), flush=True)
Q = torch.ops.quantized
torch.backends.quantized.engine = "qnnpack"
x_q = torch._make_per_tensor_quantized_tensor(torch.from_numpy(x), 0.02421491965651512, 135)
w_q = torch._make_per_channel_quantized_tensor(torch.from_numpy(np.ascontiguousarray(weight)),
    torch.tensor([8.992782213335104e-11, 1.0], dtype=torch.float32), torch.zeros(2, dtype=torch.int64), 0)
bias_f = torch.tensor([0.004676349461078644, 0.0], dtype=torch.float32)
packed = Q.conv2d_prepack(w_q, bias_f, [1, 2], [0, 0], [1, 1], 1)
y = Q.conv2d(torch.nn.functional.pad(x_q, [1, 0, 0, 0], value=0.0), packed, 0.0014016071800142527, 0)
got = y.int_repr().numpy()
got = got.astype(np.int64)
assert got.shape == expected.shape, f"shape {got.shape}, right is {expected.shape}"
wrong = np.abs(got - np.clip(steps + z_y, 0, 255)) > 0.501
print("got     ", got.ravel().tolist())
print("differs" if wrong.any() else "agrees")
sys.exit(int(wrong.any()))
