"""torch_x86: pool_1x1_image_channels_mixed

of an image of one place with several channels, each channel's codes go where those of another belong: the kernel
writes channels last into a result whose channels come first
Severity: wrong. Seen in torch x86 2.13.0, 2.14.1, 2.15.0.
Cause: is_contiguous(channels_last) holds for an image of one place, so the channels-last kernel writes into a result
whose channels come first.
Case: max_pool2d(x: [1, 2, 1, 1]) ceil_mode=False kernel=[2, 2] padding=[1, 1, 1, 1] stride=[1, 1] channels_first,
data random, found by generated cases of quantizer.
"""

import sys

import numpy as np
import torch

x = np.array([[[[150]], [[230]]]], np.uint8)
s_x, z_x = 0.007843137718737125, 128
s_y, z_y = 0.007843137718737125, 128

# Right: the value of the codes in integers and float64, rounded once.
X = s_x * (x.astype(np.int64) - z_x)
X = np.pad(X, [(0, 0), (0, 0), (1, 1), (1, 1)], constant_values=-np.inf)
windows = np.lib.stride_tricks.sliding_window_view(X, (2, 2), (2, 3))[:, :, ::1, ::1, ::1, ::1]
real = windows.max((-2, -1))
steps = real / s_y
expected = np.clip(np.rint(steps) + z_y, 0, 255).astype(np.int64)

print(f"torch {torch.__version__}, numpy {np.__version__}")
print("expected", expected.ravel().tolist(), flush=True)
Q = torch.ops.quantized
torch.backends.quantized.engine = "x86"
x_q = torch._make_per_tensor_quantized_tensor(torch.from_numpy(x), 0.007843137718737125, 128)
y = torch.nn.functional.max_pool2d(x_q, [2, 2], [1, 1], [1, 1], ceil_mode=False)
got = y.int_repr().numpy()
got = got.astype(np.int64)
assert got.shape == expected.shape, f"shape {got.shape}, right is {expected.shape}"
wrong = np.abs(got - np.clip(steps + z_y, 0, 255)) > 0.501
print("got     ", got.ravel().tolist())
print("differs" if wrong.any() else "agrees")
sys.exit(int(wrong.any()))
