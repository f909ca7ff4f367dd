"""torch_fbgemm: mul_conversion_overflows_int32

whole vectors of a product convert a float32 number of output codes to int32 without saturation: the processor gives
the smallest integer from 2**31 on, so a large positive product becomes the smallest code
Severity: wrong. Seen in torch fbgemm 2.13.0, 2.14.1, 2.15.0.
Case: mul(a: [64], b: [64]) channels_first, data random, found by generated cases of quantizer.
"""

import sys

import numpy as np
import torch

a = np.array([27, 158, 171, 255, 229, 6, 239, 180, 151, 216, 255, 108, 104, 222, 121, 128, 67, 47, 227, 206, 161, 143,
    250, 102, 212, 185, 226, 126, 196, 164, 124, 88, 102, 235, 16, 11, 133, 16, 197, 216, 71, 63, 39, 251, 78, 143, 0,
    166, 57, 227, 87, 244, 81, 93, 25, 36, 0, 227, 144, 17, 12, 197, 168, 114], np.uint8)
s_a, z_a = 1.0, 128
b = np.array([253, 255, 53, 216, 85, 112, 228, 25, 112, 123, 83, 255, 222, 253, 63, 78, 135, 231, 133, 145, 182, 82,
    155, 47, 106, 132, 184, 134, 196, 246, 19, 154, 39, 153, 245, 170, 52, 242, 51, 25, 81, 30, 133, 197, 48, 74, 161,
    58, 131, 85, 210, 148, 181, 72, 141, 235, 80, 187, 127, 240, 25, 129, 5, 76], np.uint8)
s_b, z_b = 1.0, 128
s_y, z_y = 7.84313769486289e-09, 127

# Right: the value of the codes in integers and float64, rounded once.
A = s_a * (a.astype(np.int64) - z_a)
B = s_b * (b.astype(np.int64) - z_b)
real = A * B
steps = real / s_y
expected = np.clip(np.rint(steps) + z_y, 0, 255).astype(np.int64)

print(f"torch {torch.__version__}, numpy {np.__version__}")
print("expected", expected.ravel()[:16].tolist(), flush=True)
Q = torch.ops.quantized
torch.backends.quantized.engine = "fbgemm"
a_q = torch._make_per_tensor_quantized_tensor(torch.from_numpy(a), 1.0, 128)
b_q = torch._make_per_tensor_quantized_tensor(torch.from_numpy(b), 1.0, 128)
y = Q.mul(a_q, b_q, 7.84313769486289e-09, 127)
got = y.int_repr().numpy()
got = got.astype(np.int64)
assert got.shape == expected.shape, f"shape {got.shape}, right is {expected.shape}"
wrong = np.abs(got - np.clip(steps + z_y, 0, 255)) > 0.501
at = np.flatnonzero(wrong)[:8]
print("at element ", at.tolist())
print("expected is", expected.ravel()[at].tolist())
print("got         ", got.ravel()[at].tolist())
print("differs" if wrong.any() else "agrees")
sys.exit(int(wrong.any()))
