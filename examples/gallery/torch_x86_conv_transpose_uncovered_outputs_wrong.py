"""torch_x86: conv_transpose_uncovered_outputs_wrong

where a stride is as long as the kernel or longer, sums of some places are off by multiples of the zero point, in some
runs. Of 7,074 small cases oneDNN 3.13 (torch 2.15) computes some 207 wrongly, oneDNN 3.12 one or two
Severity: memory. Seen in torch x86 2.13.0, 2.14.1, 2.15.0.
Cause: the strided brgemm deconvolution of oneDNN takes a place of the output that few or no taps reach, and corrects
it by the input's zero point from memory that nothing has written.
Kernels that show it: on processors with avx512_vnni, with onednn.avx512f.
See also https://github.com/uxlfoundation/oneDNN/pull/5237
Case: conv_transpose2d(x: [1, 1, 2, 2], weight: [1, 1, 2, 1]) dilation=[1, 1] groups=1 output_padding=[0, 0]
padding=[0, 0, 0, 0] stride=[1, 3] channels_first, data saturation, found by generated cases of quantizer.
"""

import os
import sys

os.environ["ATEN_CPU_CAPABILITY"] = "avx512"
os.environ["ONEDNN_MAX_CPU_ISA"] = "AVX512_CORE_VNNI"
os.environ["FBGEMM_ENABLE_INSTRUCTIONS"] = "AVX512_E1"
os.environ["MKL_CBWR"] = "COMPATIBLE"

import numpy as np
import torch

x = np.full([1, 1, 2, 2], 24, np.uint8)
s_x, z_x = 0.012540210969746113, 24
weight = np.array([[[[-127], [0]]]], np.int8)
s_weight, z_weight = 0.001272812020033598, 0
s_y, z_y = 0.0025879982858896255, 0

# Right: the value of the codes in integers and float64, rounded once.
X = (x.astype(np.int64) - z_x).reshape(1, 1, -1, 2, 2)
W = (weight.astype(np.int64)).reshape(1, 1, -1, 2, 1)
sums = np.zeros([1, 1, 3, 4], np.int64)
for i, j in np.ndindex(2, 1):
    part = np.einsum("ngcyx,kgc->ngkyx", X, W[..., i, j])
    sums[:, :, i * 1 : i * 1 + 2 : 1, j * 1 : j * 1 + 4 : 3] += part.reshape(1, -1, 2, 2)
real = sums[:, :, 0:3, 0:4] * (s_x * s_weight)
steps = real / s_y
expected = np.clip(np.rint(steps) + z_y, 0, 255).astype(np.int64)

print(f"torch {torch.__version__}, numpy {np.__version__}")
print("expected", expected.ravel().tolist(), flush=True)
for _ in range(20):  # what is read may change from run to run
    Q = torch.ops.quantized
    torch.backends.quantized.engine = "x86"
    x_q = torch._make_per_tensor_quantized_tensor(torch.from_numpy(x), 0.012540210969746113, 24)
    w_q = torch._make_per_tensor_quantized_tensor(torch.from_numpy(np.ascontiguousarray(weight)), 0.001272812020033598, 0)
    bias_f = None
    packed = Q.conv_transpose2d_prepack(w_q, bias_f, [1, 3], [0, 0], [0, 0], [1, 1], 1)
    y = Q.conv_transpose2d(x_q, packed, 0.0025879982858896255, 0)
    got = y.int_repr().numpy()
    got = got.astype(np.int64)
    assert got.shape == expected.shape, f"shape {got.shape}, right is {expected.shape}"
    wrong = np.abs(got - np.clip(steps + z_y, 0, 255)) > 0.501
    if wrong.any():
        break
print("got     ", got.ravel().tolist())
print("differs" if wrong.any() else "agrees")
sys.exit(int(wrong.any()))
