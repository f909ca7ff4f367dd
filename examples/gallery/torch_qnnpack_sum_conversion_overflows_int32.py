"""torch_qnnpack: sum_conversion_overflows_int32

a float32 number of output codes is converted to int32 without saturation: the processor gives the smallest integer
from 2**31 on, so a large positive sum becomes the smallest code
Severity: wrong. Seen in torch qnnpack 2.13.0, 2.14.1, 2.15.0.
Case: fully_connected(x: [1, 3], weight: [2, 3]) channels_first, data random, found by generated cases of quantizer.
"""

import sys

import numpy as np
import torch

x = np.array([[145, 255, 216]], np.uint8)
s_x, z_x = 1.0, 128
weight = np.array([[4, 59, 127], [-127, 105, -69]], np.int8)
s_weight, z_weight = np.array([1.0, 0.8668804168701172]), np.array([0, 0])
s_y, z_y = 7.84313769486289e-09, 127

# Right: the value of the codes in integers and float64, rounded once.
sums = (x.astype(np.int64) - z_x) @ (weight.astype(np.int64)).T
real = sums * (s_x * s_weight)
steps = real / s_y
expected = np.clip(np.rint(steps) + z_y, 0, 255).astype(np.int64)

print(f"torch {torch.__version__}, numpy {np.__version__}")
print("expected", expected.ravel().tolist(), flush=True)
Q = torch.ops.quantized
torch.backends.quantized.engine = "qnnpack"
x_q = torch._make_per_tensor_quantized_tensor(torch.from_numpy(x), 1.0, 128)
w_q = torch._make_per_channel_quantized_tensor(torch.from_numpy(np.ascontiguousarray(weight)), torch.tensor([1.0,
    0.8668804168701172], dtype=torch.float32), torch.zeros(2, dtype=torch.int64), 0)
bias_f = None
packed = Q.linear_prepack(w_q, bias_f)
y = Q.linear(x_q, packed, 7.84313769486289e-09, 127)
got = y.int_repr().numpy()
got = got.astype(np.int64)
assert got.shape == expected.shape, f"shape {got.shape}, right is {expected.shape}"
wrong = np.abs(got - np.clip(steps + z_y, 0, 255)) > 0.501
print("got     ", got.ravel().tolist())
print("differs" if wrong.any() else "agrees")
sys.exit(int(wrong.any()))
