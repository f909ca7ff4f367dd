"""torch_qnnpack: vector_body_rounds_differently

a kernel takes 64 codes at once, fuses the product of dequantizing with its sum, and adds the zero point to the
rounded code; the rest of a row it computes one by one, not fused, the zero point added before rounding
Severity: off by one. Seen in torch qnnpack.
Cause: the vectorized body uses a fused multiply-add and adds the zero point after rounding; the scalar tail uses
none, and adds the zero point after rounding from 2.14 on.
Case: leaky_relu(x: [2, 5, 5, 5]) slope=0.75 channels_first tiles=d02xd16xd26xd36, data near_ties, found by generated
cases of quantizer.
"""

import sys

import numpy as np
import torch

x = np.array([[[[116, 128, 21, 111, 60], [122, 156, 139, 16, 49], [83, 33, 4, 55, 116], [10, 44, 4, 32, 127], [16, 21,
    72, 72, 55]], [[4, 150, 105, 122, 144], [111, 150, 77, 88, 128], [156, 21, 44, 66, 128], [66, 144, 21, 5, 94],
    [156, 66, 128, 127, 32]], [[27, 83, 55, 83, 105], [88, 60, 111, 5, 139], [88, 83, 105, 111, 55], [83, 5, 128, 60,
    66], [4, 122, 60, 122, 94]], [[94, 111, 33, 72, 72], [100, 5, 55, 128, 88], [127, 128, 83, 111, 44], [156, 122,
    155, 32, 66], [133, 83, 122, 60, 32]], [[16, 139, 133, 144, 144], [88, 49, 4, 128, 156], [33, 21, 127, 150, 16],
    [33, 66, 32, 122, 72], [27, 66, 100, 94, 122]]], [[[122, 4, 144, 55, 72], [21, 10, 38, 44, 77], [38, 116, 155, 16,
    144], [38, 55, 60, 144, 155], [94, 55, 4, 83, 77]], [[133, 60, 4, 111, 4], [72, 116, 116, 4, 32], [94, 100, 127,
    127, 155], [10, 128, 32, 60, 105], [44, 32, 27, 155, 122]], [[21, 105, 55, 133, 139], [139, 44, 77, 127, 127],
    [10, 21, 139, 116, 33], [55, 32, 128, 105, 105], [88, 60, 133, 44, 105]], [[111, 66, 5, 38, 150], [33, 83, 100,
    122, 38], [100, 55, 72, 144, 72], [21, 16, 139, 38, 21], [83, 83, 32, 27, 94]], [[72, 60, 88, 83, 44], [72, 139,
    77, 111, 66], [139, 4, 88, 139, 133], [27, 66, 77, 155, 139], [128, 83, 150, 77, 139]]]], np.uint8)
s_x, z_x = 0.0010897767497226596, 80
s_y, z_y = 0.00059830880491063, 109

# Right: the value of the codes in integers and float64, rounded once.
X = s_x * (x.astype(np.int64) - z_x)
real = np.where(X < 0, 0.75 * X, X)
steps = real / s_y
expected = np.clip(np.sign(steps) * np.floor(np.abs(steps) + 0.5) + z_y, 0, 255).astype(np.int64)

print(f"torch {torch.__version__}, numpy {np.__version__}")
print("expected", expected.ravel()[:16].tolist(), flush=True)
Q = torch.ops.quantized
torch.backends.quantized.engine = "qnnpack"
x_q = torch._make_per_tensor_quantized_tensor(torch.from_numpy(x), 0.0010897767497226596, 80)
y = Q.leaky_relu(x_q, 0.75, False, 0.00059830880491063, 109)
got = y.int_repr().numpy()
got = got.astype(np.int64)
assert got.shape == expected.shape, f"shape {got.shape}, right is {expected.shape}"
wrong = got != expected
at = np.flatnonzero(wrong)[:8]
print("at element ", at.tolist())
print("expected is", expected.ravel()[at].tolist())
print("got         ", got.ravel()[at].tolist())
print("differs" if wrong.any() else "agrees")
sys.exit(int(wrong.any()))
