"""torch_x86: conv3d_padding_only_windows_wrong

oneDNN's brgemm kernels read what they should not where windows lie wholly in the padding: wrong codes, or SIGSEGV
Severity: memory. Seen in torch x86 2.13.0, 2.14.1, 2.15.0.
Cause: brgemm convolutions with blocks of windows that lie in the padding wholly.
Kernels that show it: on processors with avx512_vnni, with onednn.avx512f.
See also https://github.com/uxlfoundation/oneDNN/issues/5942
See also https://github.com/uxlfoundation/oneDNN/issues/5080
Case: conv3d(x: [1, 1, 1, 1, 1], weight: [1, 1, 1, 1, 2]) dilation=[1, 1, 2] groups=1 padding=[0, 1, 1, 0, 1, 1]
stride=[1, 1, 1] channels_first, data zeros, found by generated cases of quantizer.
"""

import os
import sys

os.environ["ATEN_CPU_CAPABILITY"] = "avx512"
os.environ["ONEDNN_MAX_CPU_ISA"] = "AVX512_CORE_VNNI"
os.environ["FBGEMM_ENABLE_INSTRUCTIONS"] = "AVX512_E1"
os.environ["MKL_CBWR"] = "COMPATIBLE"

import numpy as np
import torch

x = np.array([[[[[135]]]]], np.uint8)
s_x, z_x = 0.022020526230335236, 135
weight = np.array([[[[[0, 127]]]]], np.int8)
s_weight, z_weight = 0.002413957379758358, 0
s_y, z_y = 1.0, 0

# Right: the value of the codes in integers and float64, rounded once.
X = np.pad(x.astype(np.int64) - z_x, [(0, 0), (0, 0), (0, 0), (1, 1), (1, 1)])
windows = np.lib.stride_tricks.sliding_window_view(X, (1, 1, 3), (2, 3, 4))[:, :, ::1, ::1, ::1, ::1, ::1, ::2]
sums = np.einsum("ncyxvijl,kcijl->nkyxv", windows, weight.astype(np.int64))
real = sums * (s_x * s_weight)
steps = real / s_y
expected = np.clip(np.rint(steps) + z_y, 0, 255).astype(np.int64)

print(f"torch {torch.__version__}, numpy {np.__version__}")
print("expected", expected.ravel().tolist(), flush=True)
for _ in range(20):  # what is read may change from run to run
    Q = torch.ops.quantized
    torch.backends.quantized.engine = "x86"
    x_q = torch._make_per_tensor_quantized_tensor(torch.from_numpy(x), 0.022020526230335236, 135)
    w_q = torch._make_per_tensor_quantized_tensor(torch.from_numpy(np.ascontiguousarray(weight)), 0.002413957379758358, 0)
    bias_f = None
    packed = Q.conv3d_prepack(w_q, bias_f, [1, 1, 1], [0, 1, 1], [1, 1, 2], 1)
    y = Q.conv3d(x_q, packed, 1.0, 0)
    got = y.int_repr().numpy()
    got = got.astype(np.int64)
    assert got.shape == expected.shape, f"shape {got.shape}, right is {expected.shape}"
    wrong = np.abs(got - np.clip(steps + z_y, 0, 255)) > 0.501
    if wrong.any():
        break
print("got     ", got.ravel().tolist())
print("differs" if wrong.any() else "agrees")
sys.exit(int(wrong.any()))
