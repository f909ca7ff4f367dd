"""torch_fbgemm: multiply_add_not_fused

without AVX2 (ATEN_CPU_CAPABILITY=default) the kernel that takes 64 codes at once rounds products before it adds:
nothing is fused
Severity: design. Seen in torch fbgemm 2.13.0, 2.14.1, 2.15.0.
Kernels that show it: on processors with aten.sse4_1, without aten.avx2.
Case: add(a: [2, 4, 4, 2], b: [2, 4, 4, 2]) channels_first, data ties, found by generated cases of quantizer.
"""

import os
import sys

os.environ["ATEN_CPU_CAPABILITY"] = "default"

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

# Right: the value of the codes in integers and float64, rounded once.
A = s_a * (a.astype(np.int64) - z_a)
B = s_b * (b.astype(np.int64) - z_b)
real = A + B
steps = real / s_y
expected = np.clip(np.rint(steps) + z_y, 0, 255).astype(np.int64)

print(f"torch {torch.__version__}, numpy {np.__version__}")
print("expected", expected.ravel()[:16].tolist(), flush=True)
Q = torch.ops.quantized
torch.backends.quantized.engine = "fbgemm"
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
