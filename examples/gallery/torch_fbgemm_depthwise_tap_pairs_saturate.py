"""torch_fbgemm: depthwise_tap_pairs_saturate

fbgemm's depthwise kernels (3x3 and 5x5 of the same padding, channels a multiple of 8, one or two filters each) add
the products of raw codes and weights of two neighbouring taps in int16 and saturate: (0, 1), (2, 3), ... of the
window; up to 248 codes off. Weights of 7 bits (reduce_range) do not saturate.
Severity: wrong. Seen in torch fbgemm 2.13.0, 2.14.1, 2.15.0.
Cause: vpmaddubsw on pairs of neighbouring taps in fbgemm's depthwise kernels.
See also https://github.com/pytorch/pytorch/issues/42312
Case: depthwise_conv2d(x: [1, 8, 1, 2], weight: [8, 1, 3, 3]) dilation=[1, 1] padding=[1, 1, 1, 1] stride=[1, 1]
channels_first, data corners, found by generated cases of quantizer.
"""

import sys

import numpy as np
import torch

x = np.array([[[[0, 0]], [[255, 255]], [[0, 0]], [[0, 0]], [[0, 0]], [[0, 0]], [[0, 0]], [[0, 0]]]], np.uint8)
s_x, z_x = 0.003921568859368563, 0
weight = np.array([[[[0, 0, 0], [0, 0, 0], [0, 0, 0]]], [[[0, 0, 0], [0, 127, 127], [0, 0, 0]]], [[[0, 0, 0], [0, 0,
    0], [0, 0, 0]]], [[[0, 0, 0], [0, 0, 0], [0, 0, 0]]], [[[0, 0, 0], [0, 0, 0], [0, 0, 0]]], [[[0, 0, 0], [0, 0, 0],
    [0, 0, 0]]], [[[0, 0, 0], [0, 0, 0], [0, 0, 0]]], [[[0, 0, 0], [0, 0, 0], [0, 0, 0]]]], np.int8)
s_weight, z_weight = 0.007874015718698502, 0
s_y, z_y = 0.0313725508749485, 128

# Right: the value of the codes in integers and float64, rounded once.
X = np.pad(x.astype(np.int64) - z_x, [(0, 0), (0, 0), (1, 1), (1, 1)])
windows = np.lib.stride_tricks.sliding_window_view(X, (3, 3), (2, 3))[:, :, ::1, ::1, ::1, ::1]
windows = windows.reshape(len(x), 8, -1, *windows.shape[2:])
W = (weight.astype(np.int64)).reshape(8, -1, *weight.shape[1:])
sums = np.einsum("ngcyxij,gkcij->ngkyx", windows, W)
sums = sums.reshape(len(x), -1, *sums.shape[3:])
real = sums * (s_x * s_weight)
steps = real / s_y
expected = np.clip(np.rint(steps) + z_y, 0, 255).astype(np.int64)

print(f"torch {torch.__version__}, numpy {np.__version__}")
print("expected", expected.ravel().tolist(), flush=True)
Q = torch.ops.quantized
torch.backends.quantized.engine = "fbgemm"
x_q = torch._make_per_tensor_quantized_tensor(torch.from_numpy(x), 0.003921568859368563, 0)
w_q = torch._make_per_tensor_quantized_tensor(torch.from_numpy(np.ascontiguousarray(weight)), 0.007874015718698502, 0)
bias_f = None
packed = Q.conv2d_prepack(w_q, bias_f, [1, 1], [1, 1], [1, 1], 8)
y = Q.conv2d(x_q, packed, 0.0313725508749485, 128)
got = y.int_repr().numpy()
got = got.astype(np.int64)
assert got.shape == expected.shape, f"shape {got.shape}, right is {expected.shape}"
wrong = np.abs(got - np.clip(steps + z_y, 0, 255)) > 0.501
print("got     ", got.ravel().tolist())
print("differs" if wrong.any() else "agrees")
sys.exit(int(wrong.any()))
