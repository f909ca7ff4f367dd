"""torch_x86: int16_pair_sums_saturate

torch hands convolutions to oneDNN because the processor has VNNI; held to fewer instructions (ONEDNN_MAX_CPU_ISA),
oneDNN adds the products of raw codes and weights in pairs in int16, which saturates (vpmaddubsw)
Severity: wrong. Seen in torch x86 2.13.0, 2.14.1, 2.15.0.
Cause: vpmaddubsw adds two products in int16 with saturation.
Kernels that show it: on processors with avx512_vnni, without onednn.avx512_vnni.
See also https://github.com/uxlfoundation/oneDNN/issues/476
Case: conv1d(x: [1, 2, 3], weight: [1, 2, 1]) dilation=[1] groups=1 padding=[0, 0] stride=[1] channels_first, data
random, found by generated cases of quantizer.
"""

import os
import sys

os.environ["ONEDNN_MAX_CPU_ISA"] = "AVX512_CORE"

import numpy as np
import torch

x = np.array([[[0, 0, 159], [0, 0, 137]]], np.uint8)
s_x, z_x = 0.003921568859368563, 0
weight = np.array([[[-112], [-127]]], np.int8)
s_weight, z_weight = np.array([0.004454518668353558]), np.array([0])
s_y, z_y = 0.08158654719591141, 117

# Right: the value of the codes in integers and float64, rounded once.
X, W = x.astype(np.int64) - z_x, weight.astype(np.int64)
sums = np.einsum("ncy,kci->nky", X, W)
real = sums * (s_x * s_weight.reshape([1, -1, 1]))
steps = real / s_y
expected = np.clip(np.rint(steps) + z_y, 0, 255).astype(np.int64)

print(f"torch {torch.__version__}, numpy {np.__version__}")
print("expected", expected.ravel().tolist(), flush=True)
Q = torch.ops.quantized
torch.backends.quantized.engine = "x86"
x_q = torch._make_per_tensor_quantized_tensor(torch.from_numpy(x), 0.003921568859368563, 0)
w_q = torch._make_per_channel_quantized_tensor(torch.from_numpy(np.ascontiguousarray(weight)),
    torch.tensor([0.004454518668353558], dtype=torch.float32), torch.zeros(1, dtype=torch.int64), 0)
bias_f = None
packed = Q.conv1d_prepack(w_q, bias_f, [1], [0], [1], 1)
y = Q.conv1d(x_q, packed, 0.08158654719591141, 117)
got = y.int_repr().numpy()
got = got.astype(np.int64)
assert got.shape == expected.shape, f"shape {got.shape}, right is {expected.shape}"
wrong = np.abs(got - np.clip(steps + z_y, 0, 255)) > 0.501
print("got     ", got.ravel().tolist())
print("differs" if wrong.any() else "agrees")
sys.exit(int(wrong.any()))
