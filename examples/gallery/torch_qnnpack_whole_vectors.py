"""torch_qnnpack: whole_vectors

a kernel takes 64 codes at once, fuses the product of dequantizing with its sum, and adds the zero point to the
rounded code; the rest of a row it computes one by one, not fused, the zero point added before rounding
Severity: off by one. Seen in torch qnnpack.
Cause: the vectorized body uses a fused multiply-add and adds the zero point after rounding; the scalar tail does
neither.
Case: leaky_relu(x: [2, 4, 4, 2]) slope=0.7734375 channels_first tiles=d11, data ties, found by generated cases of
quantizer.
"""

import sys

import numpy as np
import torch

x = np.array([[[[163, 158], [163, 166], [164, 169], [171, 159]], [[158, 169], [157, 163], [171, 159], [170, 171]],
    [[165, 171], [171, 169], [168, 163], [166, 165]], [[166, 157], [166, 164], [157, 166], [165, 170]]], [[[170, 167],
    [170, 160], [157, 166], [161, 170]], [[171, 165], [161, 163], [168, 167], [160, 171]], [[157, 159], [165, 165],
    [160, 170], [165, 161]], [[165, 157], [160, 165], [171, 169], [166, 168]]]], np.uint8)
s_x, z_x = 0.25, 164
s_y, z_y = 2.0, 121

# Right: the same numbers computed in parts (d1 1): neither order is wrong alone.
expected = np.array([[[[121, 120], [121, 121], [121, 122], [122, 121]], [[120, 122], [120, 121], [122, 121], [122,
    122]], [[121, 122], [122, 122], [122, 121], [121, 121]], [[121, 120], [121, 121], [120, 121], [121, 122]]],
    [[[122, 121], [122, 121], [120, 121], [121, 122]], [[122, 121], [121, 121], [122, 121], [121, 122]], [[120, 121],
    [121, 121], [121, 122], [121, 121]], [[121, 120], [121, 121], [122, 122], [121, 122]]]], np.int64)

print(f"torch {torch.__version__}, numpy {np.__version__}")
print("expected", expected.ravel()[:16].tolist(), flush=True)
Q = torch.ops.quantized
torch.backends.quantized.engine = "qnnpack"
x_q = torch._make_per_tensor_quantized_tensor(torch.from_numpy(x), 0.25, 164)
y = Q.leaky_relu(x_q, 0.7734375, False, 2.0, 121)
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
