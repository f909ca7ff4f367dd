"""QNNPACK divides by all places of a window, whatever count_include_pad says

Severity: wrong. Seen in torch qnnpack 2.13.0, 2.14.1, 2.15.0.
Cause: QNNPACK's average pooling has no count that leaves padding out.
Case: avg_pool2d(x: [1, 1, 1, 1]) ceil_mode=False count_include_pad=False kernel=[2, 2] padding=[1, 1, 1, 1]
stride=[1, 1] channels_first, data random, found by generated cases of quantizer.
"""

import sys

import numpy as np
import torch

x = np.array([[[[150]]]], np.uint8)
s_x, z_x = 0.003921568859368563, 0
s_y, z_y = 0.003921568859368563, 0

# Right: the value of the codes in integers and float64, rounded once.
X = s_x * (x.astype(np.int64) - z_x)
X = np.pad(X, [(0, 0), (0, 0), (1, 1), (1, 1)])
windows = np.lib.stride_tricks.sliding_window_view(X, (2, 2), (2, 3))[:, :, ::1, ::1, ::1, ::1]
counted = np.pad(np.ones_like(x, np.int64), [(0, 0), (0, 0), (1, 1), (1, 1)])
counts = np.lib.stride_tricks.sliding_window_view(counted, (2, 2), (2, 3))[:, :, ::1, ::1, ::1, ::1].sum((-2, -1))
real = windows.sum((-2, -1)) / np.maximum(counts, 1)
steps = real / s_y
expected = np.clip(np.rint(steps) + z_y, 0, 255).astype(np.int64)

print(f"torch {torch.__version__}, numpy {np.__version__}")
print("expected", expected.ravel().tolist(), flush=True)
Q = torch.ops.quantized
torch.backends.quantized.engine = "qnnpack"
x_q = torch._make_per_tensor_quantized_tensor(torch.from_numpy(x), 0.003921568859368563, 0)
y = torch.nn.functional.avg_pool2d(x_q, [2, 2], [1, 1], [1, 1], False, False)
got = y.int_repr().numpy()
got = got.astype(np.int64)
assert got.shape == expected.shape, f"shape {got.shape}, right is {expected.shape}"
wrong = np.abs(got - np.clip(steps + z_y, 0, 255)) > 0.501
print("got     ", got.ravel().tolist())
print("differs" if wrong.any() else "agrees")
sys.exit(int(wrong.any()))
