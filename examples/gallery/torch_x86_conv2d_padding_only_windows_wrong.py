"""torch_x86: conv2d_padding_only_windows_wrong

oneDNN's brgemm kernels read what they should not where windows lie wholly in the padding: wrong codes, or SIGSEGV
Severity: memory. Seen in torch x86 2.13.0, 2.14.1.
Cause: brgemm convolutions with blocks of windows that lie in the padding wholly.
Kernels that show it: on processors with avx512_vnni, with onednn.avx512f.
See also https://github.com/uxlfoundation/oneDNN/issues/5942
See also https://github.com/uxlfoundation/oneDNN/issues/5080
Case: conv2d(x: [1, 1, 1, 1], weight: [1, 1, 1, 1]) dilation=[1, 2] groups=1 padding=[0, 1, 0, 1] stride=[1, 2]
channels_first, data small_integers, found by generated cases of quantizer.
"""

import os
import sys

os.environ["ATEN_CPU_CAPABILITY"] = "avx512"
os.environ["ONEDNN_MAX_CPU_ISA"] = "AVX512_CORE_VNNI"
os.environ["FBGEMM_ENABLE_INSTRUCTIONS"] = "AVX512_E1"
os.environ["MKL_CBWR"] = "COMPATIBLE"

import numpy as np
import torch

x = np.array([[[[128]]]], np.uint8)
s_x, z_x = 0.0313725508749485, 128
weight = np.array([[[[0]]]], np.int8)
s_weight, z_weight = np.array([1.0]), np.array([0])
s_y, z_y = 0.0470588244497776, 170

# Right: the value of the codes in integers and float64, rounded once.
X = np.pad(x.astype(np.int64) - z_x, [(0, 0), (0, 0), (0, 0), (1, 1)])
windows = np.lib.stride_tricks.sliding_window_view(X, (1, 1), (2, 3))[:, :, ::1, ::2, ::1, ::2]
sums = np.einsum("ncyxij,kcij->nkyx", windows, weight.astype(np.int64))
real = sums * (s_x * s_weight.reshape([1, -1, 1, 1]))
steps = real / s_y
expected = np.clip(np.rint(steps) + z_y, 0, 255).astype(np.int64)

print(f"torch {torch.__version__}, numpy {np.__version__}")
print("expected", expected.ravel().tolist(), flush=True)
for _ in range(20):  # what is read may change from run to run
    Q = torch.ops.quantized
    torch.backends.quantized.engine = "x86"
    x_q = torch._make_per_tensor_quantized_tensor(torch.from_numpy(x), 0.0313725508749485, 128)
    w_q = torch._make_per_channel_quantized_tensor(torch.from_numpy(np.ascontiguousarray(weight)), torch.tensor([1.0],
        dtype=torch.float32), torch.zeros(1, dtype=torch.int64), 0)
    bias_f = None
    packed = Q.conv2d_prepack(w_q, bias_f, [1, 2], [0, 1], [1, 2], 1)
    y = Q.conv2d(x_q, packed, 0.0470588244497776, 170)
    got = y.int_repr().numpy()
    got = got.astype(np.int64)
    assert got.shape == expected.shape, f"shape {got.shape}, right is {expected.shape}"
    wrong = np.abs(got - np.clip(steps + z_y, 0, 255)) > 0.501
    if wrong.any():
        break
print("got     ", got.ravel().tolist())
print("differs" if wrong.any() else "agrees")
sys.exit(int(wrong.any()))
