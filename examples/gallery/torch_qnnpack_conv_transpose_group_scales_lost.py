"""torch_qnnpack: conv_transpose_group_scales_lost

weights with a scale for each channel: the scales of the first group alone are kept, and those of the others are
whatever follows in memory; it refuses to run where one is not positive
Severity: memory. Seen in torch qnnpack 2.13.0, 2.14.1, 2.15.0.
Case: conv_transpose2d(x: [1, 3, 1, 1], weight: [1, 3, 1, 1]) dilation=[1, 1] groups=3 output_padding=[0, 0]
padding=[0, 0, 0, 0] stride=[1, 1] channels_first, data one_hot, found by generated cases of quantizer.
"""

import sys

import numpy as np
import torch

x = np.full([1, 3, 1, 1], 219, np.uint8)
s_x, z_x = 0.0007443895447067916, 219
weight = np.full([1, 3, 1, 1], 0, np.int8)
s_weight, z_weight = np.array([1.0]), np.array([0])
s_y, z_y = 0.0010128262219950557, 106

# Right: the value of the codes in integers and float64, rounded once.
X = (x.astype(np.int64) - z_x).reshape(1, 3, -1, 1, 1)
W = (weight.astype(np.int64)).reshape(1, 3, -1, 1, 1)
sums = np.zeros([1, 3, 1, 1], np.int64)
for i, j in np.ndindex(1, 1):
    part = np.einsum("ngcyx,kgc->ngkyx", X, W[..., i, j])
    sums[:, :, i * 1 : i * 1 + 1 : 1, j * 1 : j * 1 + 1 : 1] += part.reshape(1, -1, 1, 1)
real = sums[:, :, 0:1, 0:1] * (s_x * np.tile(s_weight, 3).reshape([1, -1, 1, 1]))
steps = real / s_y
expected = np.clip(np.rint(steps) + z_y, 0, 255).astype(np.int64)

print(f"torch {torch.__version__}, numpy {np.__version__}")
print("expected", expected.ravel().tolist(), flush=True)
for _ in range(20):  # what is read may change from run to run
    Q = torch.ops.quantized
    torch.backends.quantized.engine = "qnnpack"
    x_q = torch._make_per_tensor_quantized_tensor(torch.from_numpy(x), 0.0007443895447067916, 219)
    w_q = torch._make_per_channel_quantized_tensor(torch.from_numpy(np.ascontiguousarray(weight.swapaxes(0, 1))),
        torch.tensor([1.0], dtype=torch.float32), torch.zeros(1, dtype=torch.int64), 1)
    bias_f = None
    packed = Q.conv_transpose2d_prepack(w_q, bias_f, [1, 1], [0, 0], [0, 0], [1, 1], 3)
    y = Q.conv_transpose2d(x_q, packed, 0.0010128262219950557, 106)
    got = y.int_repr().numpy()
    got = got.astype(np.int64)
    assert got.shape == expected.shape, f"shape {got.shape}, right is {expected.shape}"
    wrong = np.abs(got - np.clip(steps + z_y, 0, 255)) > 0.501
    if wrong.any():
        break
print("got     ", got.ravel().tolist())
print("differs" if wrong.any() else "agrees")
sys.exit(int(wrong.any()))
