"""torch_qnnpack: multiply_add_not_fused

without AVX2 (ATEN_CPU_CAPABILITY=default) the kernel that takes 64 codes at once rounds products before it adds:
nothing is fused
Severity: design. Seen in torch qnnpack 2.13.0, 2.14.1, 2.15.0.
Kernels that show it: on processors with aten.sse4_1, without aten.avx2.
Case: leaky_relu(x: [3, 6, 4]) slope=0.0 channels_first, data ties, found by generated cases of quantizer.
"""

import os
import sys

os.environ["ATEN_CPU_CAPABILITY"] = "default"

import numpy as np
import torch

x = np.array([[[146, 146, 146, 146], [146, 146, 146, 146], [146, 146, 146, 146], [146, 146, 146, 146], [146, 146, 146,
    146], [146, 146, 146, 146]], [[146, 146, 146, 146], [146, 146, 146, 146], [146, 146, 146, 146], [146, 146, 146,
    146], [146, 146, 146, 146], [146, 146, 146, 146]], [[146, 146, 146, 146], [146, 146, 146, 146], [146, 146, 152,
    146], [146, 146, 146, 146], [146, 146, 146, 146], [146, 146, 146, 146]]], np.uint8)
s_x, z_x = 4.0, 146
s_y, z_y = 16.0, 125

# Right: the value of the codes in integers and float64, rounded once.
X = s_x * (x.astype(np.int64) - z_x)
real = np.where(X < 0, 0.0 * X, X)
steps = real / s_y
expected = np.clip(np.rint(steps) + z_y, 0, 255).astype(np.int64)

print(f"torch {torch.__version__}, numpy {np.__version__}")
print("expected", expected.ravel()[:16].tolist(), flush=True)
Q = torch.ops.quantized
torch.backends.quantized.engine = "qnnpack"
x_q = torch._make_per_tensor_quantized_tensor(torch.from_numpy(x), 4.0, 146)
y = Q.leaky_relu(x_q, 0.0, False, 16.0, 125)
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
