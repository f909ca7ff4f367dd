"""torch_qnnpack: broadcast_add_uses_float32

operands of equal shapes go to QNNPACK's integer kernel, half away from zero; where one broadcasts, to torch's float32
kernel, half to even
Severity: design. Seen in torch qnnpack.
Case: add(a: [2], b: [1]) channels_first tiles=d03, data ties, found by generated cases of quantizer.
"""

import sys

import numpy as np
import torch

a = np.array([97, 105], np.uint8)
s_a, z_a = 0.25, 98
b = np.array([159], np.uint8)
s_b, z_b = 0.125, 161
s_y, z_y = 1.0, 128

# Right: the value of the codes in integers and float64, rounded once.
A = s_a * (a.astype(np.int64) - z_a)
B = s_b * (b.astype(np.int64) - z_b)
real = A + B
steps = real / s_y
expected = np.clip(np.sign(steps) * np.floor(np.abs(steps) + 0.5) + z_y, 0, 255).astype(np.int64)

print(f"torch {torch.__version__}, numpy {np.__version__}")
print("expected", expected.ravel().tolist(), flush=True)
Q = torch.ops.quantized
torch.backends.quantized.engine = "qnnpack"
a_q = torch._make_per_tensor_quantized_tensor(torch.from_numpy(a), 0.25, 98)
b_q = torch._make_per_tensor_quantized_tensor(torch.from_numpy(b), 0.125, 161)
y = Q.add(a_q, b_q, 1.0, 128)
got = y.int_repr().numpy()
got = got.astype(np.int64)
assert got.shape == expected.shape, f"shape {got.shape}, right is {expected.shape}"
wrong = got != expected
print("got     ", got.ravel().tolist())
print("differs" if wrong.any() else "agrees")
sys.exit(int(wrong.any()))
