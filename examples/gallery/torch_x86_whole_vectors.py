"""torch_x86: whole_vectors

a kernel takes 64 codes at once, fuses the product of dequantizing with its sum, and adds the zero point to the
rounded code; the rest of a row it computes one by one, not fused, the zero point added before rounding
Severity: off by one. Seen in torch x86.
Cause: the vectorized body uses a fused multiply-add and adds the zero point after rounding; the scalar tail does
neither.
Case: add(a: [2, 4, 4, 2], b: [2, 4, 4, 2]) channels_first tiles=d11, data ties, found by generated cases of
quantizer.
"""

import sys

import numpy as np
import torch

a = np.full([2, 4, 4, 2], 141, np.uint8)
s_a, z_a = 8.0, 141
b = np.array([[[[75, 75], [75, 75], [75, 75], [75, 75]], [[75, 75], [75, 75], [75, 75], [75, 75]], [[75, 75], [75,
    75], [75, 75], [75, 75]], [[75, 75], [75, 75], [75, 75], [75, 75]]], [[[75, 75], [75, 75], [75, 75], [75, 75]],
    [[75, 75], [75, 75], [75, 75], [75, 75]], [[75, 75], [75, 75], [75, 75], [75, 75]], [[75, 75], [75, 75], [75, 73],
    [75, 75]]]], np.uint8)
s_b, z_b = 1.0, 75
s_y, z_y = 4.0, 121

# Right: the same numbers computed in parts (d1 1): neither order is wrong alone.
expected = np.array([[[[121, 121], [121, 121], [121, 121], [121, 121]], [[121, 121], [121, 121], [121, 121], [121,
    121]], [[121, 121], [121, 121], [121, 121], [121, 121]], [[121, 121], [121, 121], [121, 121], [121, 121]]],
    [[[121, 121], [121, 121], [121, 121], [121, 121]], [[121, 121], [121, 121], [121, 121], [121, 121]], [[121, 121],
    [121, 121], [121, 121], [121, 121]], [[121, 121], [121, 121], [121, 120], [121, 121]]]], np.int64)

print(f"torch {torch.__version__}, numpy {np.__version__}")
print("expected", expected.ravel()[:16].tolist(), flush=True)
Q = torch.ops.quantized
torch.backends.quantized.engine = "x86"
a_q = torch._make_per_tensor_quantized_tensor(torch.from_numpy(a), 8.0, 141)
b_q = torch._make_per_tensor_quantized_tensor(torch.from_numpy(b), 1.0, 75)
y = Q.add(a_q, b_q, 4.0, 121)
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
