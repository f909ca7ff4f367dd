"""torch_x86: vector_body_rounds_differently

a kernel takes 64 codes at once, fuses the product of dequantizing with its sum, and adds the zero point to the
rounded code; the rest of a row it computes one by one, not fused, the zero point added before rounding
Severity: off by one. Seen in torch x86.
Cause: the vectorized body uses a fused multiply-add and adds the zero point after rounding; the scalar tail uses
none, and adds the zero point after rounding from 2.14 on.
Case: add(a: [2, 4, 4, 2], b: [2, 4, 4, 2]) channels_first tiles=d11, data ties, found by generated cases of
quantizer.
"""

import sys

import numpy as np
import torch

a = np.array([[[[176, 169], [179, 175], [170, 172], [167, 167]], [[178, 170], [170, 174], [176, 181], [180, 173]],
    [[180, 167], [175, 170], [169, 178], [168, 180]], [[173, 170], [177, 174], [167, 173], [170, 169]]], [[[169, 170],
    [181, 179], [179, 170], [178, 174]], [[175, 169], [176, 181], [175, 172], [170, 180]], [[176, 175], [174, 172],
    [181, 176], [173, 167]], [[178, 174], [177, 173], [178, 178], [176, 170]]]], np.uint8)
s_a, z_a = 0.009158913046121597, 174
b = np.array([[[[177, 174], [175, 169], [166, 168], [180, 166]], [[175, 177], [170, 167], [172, 179], [167, 177]],
    [[172, 173], [166, 167], [176, 173], [170, 172]], [[178, 167], [166, 173], [175, 168], [169, 171]]], [[[171, 175],
    [175, 169], [169, 172], [167, 177]], [[176, 166], [173, 173], [169, 179], [180, 177]], [[175, 174], [169, 179],
    [168, 174], [167, 173]], [[175, 177], [169, 168], [171, 179], [166, 176]]]], np.uint8)
s_b, z_b = 0.003025149693712592, 173
s_y, z_y = 0.001301505253650248, 163

# Right: the same numbers computed in parts (d1 1): neither order is wrong alone.
expected = np.array([[[[186, 130], [203, 161], [119, 137], [130, 97]], [[196, 144], [128, 149], [175, 226], [191,
    165]], [[203, 114], [154, 121], [135, 191], [114, 203]], [[168, 121], [168, 163], [118, 144], [126, 123]]],
    [[[123, 140], [217, 189], [189, 133], [177, 172]], [[177, 112], [177, 212], [161, 163], [151, 215]], [[182, 172],
    [154, 163], [201, 179], [142, 114]], [[196, 172], [175, 144], [186, 205], [161, 142]]]], np.int64)

print(f"torch {torch.__version__}, numpy {np.__version__}")
print("expected", expected.ravel()[:16].tolist(), flush=True)
Q = torch.ops.quantized
torch.backends.quantized.engine = "x86"
a_q = torch._make_per_tensor_quantized_tensor(torch.from_numpy(a), 0.009158913046121597, 174)
b_q = torch._make_per_tensor_quantized_tensor(torch.from_numpy(b), 0.003025149693712592, 173)
y = Q.add(a_q, b_q, 0.001301505253650248, 163)
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
