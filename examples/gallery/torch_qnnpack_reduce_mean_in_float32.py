"""torch_qnnpack: reduce_mean_in_float32

a mean of other axes than the last ones is that of float32 values, added in an order that depends on the other axes
Severity: design. Seen in torch qnnpack.
Case: reduce_mean(x: [3, 3, 6, 6]) axes=[1, 2] keepdims=False channels_first tiles=d11, data random, found by
generated cases of quantizer.
"""

import sys

import numpy as np
import torch

x = np.array([[[[82, 207, 12, 82, 213, 0], [17, 12, 191, 229, 255, 255], [106, 58, 117, 58, 145, 153], [176, 168, 230,
    100, 221, 72], [90, 206, 191, 50, 139, 15], [196, 136, 13, 117, 64, 112]], [[254, 232, 17, 35, 255, 159], [6, 242,
    40, 46, 23, 103], [134, 151, 50, 125, 198, 72], [209, 58, 196, 20, 233, 77], [68, 215, 52, 240, 24, 99], [57, 179,
    77, 155, 59, 204]], [[217, 82, 23, 221, 230, 145], [30, 241, 149, 240, 119, 8], [114, 83, 55, 40, 127, 70], [133,
    255, 134, 255, 249, 203], [193, 69, 207, 12, 167, 216], [105, 226, 139, 14, 188, 138]]], [[[20, 193, 171, 225,
    114, 79], [255, 115, 104, 251, 50, 103], [0, 251, 255, 166, 254, 249], [84, 248, 23, 151, 234, 171], [190, 50, 15,
    3, 69, 37], [255, 29, 68, 206, 51, 76]], [[89, 164, 220, 142, 161, 250], [157, 206, 121, 139, 207, 27], [75, 54,
    113, 255, 15, 101], [81, 236, 0, 214, 47, 175], [162, 198, 114, 96, 255, 175], [255, 163, 72, 109, 0, 120]], [[23,
    11, 150, 58, 97, 61], [171, 233, 147, 251, 0, 207], [79, 146, 169, 255, 107, 114], [58, 236, 178, 180, 222, 203],
    [236, 124, 78, 187, 184, 213], [244, 13, 126, 145, 122, 152]]], [[[127, 208, 17, 118, 95, 31], [201, 61, 189, 15,
    158, 208], [128, 225, 47, 40, 223, 32], [255, 111, 50, 5, 160, 247], [140, 156, 162, 49, 86, 75], [200, 77, 219,
    226, 50, 203]], [[56, 130, 18, 141, 122, 28], [194, 10, 117, 66, 182, 146], [122, 0, 144, 0, 74, 67], [191, 99,
    241, 154, 243, 62], [225, 168, 255, 177, 220, 116], [0, 227, 255, 0, 53, 106]], [[232, 149, 134, 125, 166, 231],
    [36, 10, 1, 68, 148, 214], [227, 60, 67, 244, 137, 46], [185, 92, 154, 139, 255, 139], [66, 31, 176, 109, 196,
    51], [238, 52, 102, 244, 185, 31]]]], np.uint8)
s_x, z_x = 0.06087622418999672, 167
s_y, z_y = 0.06087622418999672, 167

# Right: the same numbers computed in parts (d1 1): neither order is wrong alone.
expected = np.array([[121, 157, 105, 113, 162, 117], [135, 148, 118, 168, 122, 140], [157, 104, 130, 107, 153, 113]],
    np.int64)

print(f"torch {torch.__version__}, numpy {np.__version__}")
print("expected", expected.ravel()[:16].tolist(), flush=True)
Q = torch.ops.quantized
torch.backends.quantized.engine = "qnnpack"
x_q = torch._make_per_tensor_quantized_tensor(torch.from_numpy(x), 0.06087622418999672, 167)
y = x_q.mean([1, 2], keepdim=False)
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
