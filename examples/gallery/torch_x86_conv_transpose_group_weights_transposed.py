"""torch_x86: conv_transpose_group_weights_transposed

oneDNN reads the weights of a group as if it had as many inputs as outputs: element (o, i) is that of the matrix
written transposed under the other's shape. Right where both are equal or one is 1.
Severity: wrong. Seen in torch x86 2.13.0, 2.14.1, 2.15.0.
Kernels that show it: on processors with avx512_vnni.
Case: conv_transpose2d(x: [1, 2, 1, 1], weight: [3, 2, 1, 1]) dilation=[1, 1] groups=1 output_padding=[0, 0]
padding=[0, 0, 0, 0] stride=[1, 1] channels_first, data random, found by generated cases of quantizer.
"""

import os
import sys

os.environ["ATEN_CPU_CAPABILITY"] = "avx512"
os.environ["ONEDNN_MAX_CPU_ISA"] = "AVX512_CORE_VNNI"
os.environ["FBGEMM_ENABLE_INSTRUCTIONS"] = "AVX512_E1"
os.environ["MKL_CBWR"] = "COMPATIBLE"

import numpy as np
import torch

x = np.array([[[[0]], [[229]]]], np.uint8)
s_x, z_x = 0.062745101749897, 0
weight = np.array([[[[0]], [[0]]], [[[0]], [[127]]], [[[0]], [[0]]]], np.int8)
s_weight, z_weight = 0.0014685527421534061, 0
s_y, z_y = 0.05098039284348488, 0

# Right: the value of the codes in integers and float64, rounded once.
X = (x.astype(np.int64) - z_x).reshape(1, 1, -1, 1, 1)
W = (weight.astype(np.int64)).reshape(3, 1, -1, 1, 1)
sums = np.zeros([1, 3, 1, 1], np.int64)
for i, j in np.ndindex(1, 1):
    part = np.einsum("ngcyx,kgc->ngkyx", X, W[..., i, j])
    sums[:, :, i * 1 : i * 1 + 1 : 1, j * 1 : j * 1 + 1 : 1] += part.reshape(1, -1, 1, 1)
real = sums[:, :, 0:1, 0:1] * (s_x * s_weight)
steps = real / s_y
expected = np.clip(np.rint(steps) + z_y, 0, 255).astype(np.int64)

print(f"torch {torch.__version__}, numpy {np.__version__}")
print("expected", expected.ravel().tolist(), flush=True)
Q = torch.ops.quantized
torch.backends.quantized.engine = "x86"
x_q = torch._make_per_tensor_quantized_tensor(torch.from_numpy(x), 0.062745101749897, 0)
w_q = torch._make_per_tensor_quantized_tensor(torch.from_numpy(np.ascontiguousarray(weight.swapaxes(0, 1))),
    0.0014685527421534061, 0)
bias_f = None
packed = Q.conv_transpose2d_prepack(w_q, bias_f, [1, 1], [0, 0], [0, 0], [1, 1], 1)
y = Q.conv_transpose2d(x_q, packed, 0.05098039284348488, 0)
got = y.int_repr().numpy()
got = got.astype(np.int64)
assert got.shape == expected.shape, f"shape {got.shape}, right is {expected.shape}"
wrong = np.abs(got - np.clip(steps + z_y, 0, 255)) > 0.501
print("got     ", got.ravel().tolist())
print("differs" if wrong.any() else "agrees")
sys.exit(int(wrong.any()))
