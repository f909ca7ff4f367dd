"""torch_x86: avg_pool_one_channel_rounds_differently

global_avg_pool2d treats one channel otherwise than several. With several channels it rounds (sum of codes) / n. With
one channel it rounds (sum of codes minus zero points) / n + zero point. From 2.14 on it rounds one channel before it
adds the zero point; avg_pool2d does so, too.
Severity: off by one. Seen in torch x86.
Case: global_avg_pool2d(x: [2, 2, 6, 5]) channels_first tiles=c1, data corners, found by generated cases of quantizer.
"""

import sys

import numpy as np
import torch

x = np.array([[[[211, 211, 211, 211, 211], [211, 211, 211, 211, 211], [211, 211, 211, 211, 211], [211, 211, 211, 211,
    211], [211, 211, 211, 211, 211], [211, 211, 211, 211, 211]], [[211, 211, 211, 211, 211], [211, 211, 211, 211,
    211], [211, 211, 211, 211, 211], [211, 211, 211, 211, 211], [211, 211, 211, 211, 211], [211, 211, 211, 211,
    211]]], [[[211, 211, 211, 211, 211], [211, 211, 211, 211, 211], [211, 211, 211, 211, 211], [211, 211, 211, 211,
    211], [211, 211, 211, 211, 211], [211, 211, 211, 211, 211]], [[255, 255, 255, 255, 0], [0, 255, 255, 255, 255],
    [0, 255, 0, 0, 255], [211, 211, 211, 211, 211], [211, 211, 211, 211, 211], [211, 211, 211, 211, 211]]]], np.uint8)
s_x, z_x = 0.011559818871319294, 211
s_y, z_y = 0.011559818871319294, 211

# Right: the same numbers computed in parts (c 1): neither order is wrong alone.
expected = np.array([[[[211]], [[211]]], [[[211]], [[190]]]], np.int64)

print(f"torch {torch.__version__}, numpy {np.__version__}")
print("expected", expected.ravel().tolist(), flush=True)
Q = torch.ops.quantized
torch.backends.quantized.engine = "x86"
x_q = torch._make_per_tensor_quantized_tensor(torch.from_numpy(x), 0.011559818871319294, 211)
y = torch.nn.functional.adaptive_avg_pool2d(x_q, (1, 1))
got = y.int_repr().numpy()
got = got.astype(np.int64)
assert got.shape == expected.shape, f"shape {got.shape}, right is {expected.shape}"
wrong = got != expected
print("got     ", got.ravel().tolist())
print("differs" if wrong.any() else "agrees")
sys.exit(int(wrong.any()))
