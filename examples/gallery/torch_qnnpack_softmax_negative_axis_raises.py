"""QNNPACK uses a negative axis as an index without adding the rank, and raises

Severity: wrong. Seen in torch qnnpack 2.13.0, 2.14.1, 2.15.0.
Cause: the axis is used as an index before it is wrapped.
Case: softmax(x: [1, 2]) axis=-2 channels_first, data random, found by generated cases of quantizer.
"""

import sys

import numpy as np
import torch

x = np.full([1, 2], 0, np.uint8)
s_x, z_x = 0.003921568859368563, 0
s_y, z_y = 0.00390625, 0

# Right: the value of the codes in integers and float64, rounded once.
X = s_x * (x.astype(np.int64) - z_x)
powers = np.exp(X - X.max(-2, keepdims=True))
real = powers / powers.sum(-2, keepdims=True)
steps = real / s_y
expected = np.clip(np.rint(steps) + z_y, 0, 255).astype(np.int64)

print(f"torch {torch.__version__}, numpy {np.__version__}")
print("expected", expected.ravel().tolist(), flush=True)
Q = torch.ops.quantized
torch.backends.quantized.engine = "qnnpack"
x_q = torch._make_per_tensor_quantized_tensor(torch.from_numpy(x), 0.003921568859368563, 0)
y = Q.softmax(x_q, -2, 0.00390625, 0)
got = y.int_repr().numpy()
got = got.astype(np.int64)
assert got.shape == expected.shape, f"shape {got.shape}, right is {expected.shape}"
wrong = np.abs(got - np.clip(steps + z_y, 0, 255)) > 0.501
print("got     ", got.ravel().tolist())
print("differs" if wrong.any() else "agrees")
sys.exit(int(wrong.any()))
