"""torch_qnnpack: avg_pool_one_channel_rounds_differently

windows that may overhang go to ATen, which rounds the mean of one channel before it adds the zero point, and adds it
to the mean of several channels before it rounds
Severity: off by one. Seen in torch qnnpack 2.14.1, 2.15.0.
Case: avg_pool2d(x: [1, 2, 1, 3]) ceil_mode=True count_include_pad=False kernel=[1, 2] padding=[0, 0, 0, 0] stride=[1,
1] channels_first, data saturation, found by generated cases of quantizer.
"""

import sys

import numpy as np
import torch

x = np.array([[[[167, 88, 167]], [[167, 167, 167]]]], np.uint8)
s_x, z_x = 0.03785232827067375, 167
s_y, z_y = 0.03785232827067375, 167

# Right: the value of the codes in integers and float64, rounded once.
X = s_x * (x.astype(np.int64) - z_x)
X = np.pad(X, [(0, 0), (0, 0), (0, 0), (0, 0)])
windows = np.lib.stride_tricks.sliding_window_view(X, (1, 2), (2, 3))[:, :, ::1, ::1, ::1, ::1]
real = windows.sum((-2, -1)) / 2
steps = real / s_y
expected = np.clip(np.rint(steps + z_y), 0, 255).astype(np.int64)

print(f"torch {torch.__version__}, numpy {np.__version__}")
print("expected", expected.ravel().tolist(), flush=True)
Q = torch.ops.quantized
torch.backends.quantized.engine = "qnnpack"
x_q = torch._make_per_tensor_quantized_tensor(torch.from_numpy(x), 0.03785232827067375, 167)
y = torch.nn.functional.avg_pool2d(x_q, [1, 2], [1, 1], [0, 0], True, False)
got = y.int_repr().numpy()
got = got.astype(np.int64)
assert got.shape == expected.shape, f"shape {got.shape}, right is {expected.shape}"
wrong = got != expected
print("got     ", got.ravel().tolist())
print("differs" if wrong.any() else "agrees")
sys.exit(int(wrong.any()))
