"""torch_x86: conv1d_padding_only_windows_wrong

oneDNN's brgemm kernels read what they should not where windows lie wholly in the padding: wrong codes, or SIGSEGV
Severity: memory. Seen in torch x86 2.13.0, 2.14.1.
Cause: brgemm convolutions with blocks of windows that lie in the padding wholly.
Kernels that show it: on processors with avx512_vnni, with onednn.avx512f.
See also https://github.com/uxlfoundation/oneDNN/issues/5942
See also https://github.com/uxlfoundation/oneDNN/issues/5080
Case: conv1d(x: [1, 2, 1], weight: [4, 1, 1], bias: [4]) dilation=[2] groups=2 padding=[1, 1] stride=[2]
channels_first, data random, found by generated cases of quantizer.
"""

import os
import sys

os.environ["ATEN_CPU_CAPABILITY"] = "avx512"
os.environ["ONEDNN_MAX_CPU_ISA"] = "AVX512_CORE_VNNI"
os.environ["FBGEMM_ENABLE_INSTRUCTIONS"] = "AVX512_E1"
os.environ["MKL_CBWR"] = "COMPATIBLE"

import numpy as np
import torch

x = np.array([[[219], [232]]], np.uint8)
s_x, z_x = 0.017666207626461983, 44
weight = np.array([[[84]], [[-103]], [[36]], [[127]]], np.int8)
s_weight, z_weight = 0.0009241779916919768, 0
bias = np.array([-2603, 1480, 1577, 3574], np.int32)
s_bias, z_bias = 1.6326719560311176e-05, 0
s_y, z_y = 0.0003954769636038691, 107

# Right: the value of the codes in integers and float64, rounded once.
X = np.pad(x.astype(np.int64) - z_x, [(0, 0), (0, 0), (1, 1)])
windows = np.lib.stride_tricks.sliding_window_view(X, (1,), (2,))[:, :, ::2, ::2]
windows = windows.reshape(len(x), 2, -1, *windows.shape[2:])
W = (weight.astype(np.int64)).reshape(2, -1, *weight.shape[1:])
sums = np.einsum("ngcyi,gkci->ngky", windows, W)
sums = sums.reshape(len(x), -1, *sums.shape[3:])
real = sums * (s_x * s_weight) + (s_bias * bias.astype(np.int64)).reshape([1, -1, 1])
steps = real / s_y
expected = np.clip(np.rint(steps) + z_y, 0, 255).astype(np.int64)

print(f"torch {torch.__version__}, numpy {np.__version__}")
print("expected", expected.ravel().tolist(), flush=True)
for _ in range(20):  # what is read may change from run to run
    Q = torch.ops.quantized
    torch.backends.quantized.engine = "x86"
    x_q = torch._make_per_tensor_quantized_tensor(torch.from_numpy(x), 0.017666207626461983, 44)
    w_q = torch._make_per_tensor_quantized_tensor(torch.from_numpy(np.ascontiguousarray(weight)), 0.0009241779916919768,
        0)
    bias_f = torch.tensor([-0.042498450726270676, 0.024163544178009033, 0.025747235864400864, 0.05835169553756714],
        dtype=torch.float32)
    packed = Q.conv1d_prepack(w_q, bias_f, [2], [1], [2], 2)
    y = Q.conv1d(x_q, packed, 0.0003954769636038691, 107)
    got = y.int_repr().numpy()
    got = got.astype(np.int64)
    assert got.shape == expected.shape, f"shape {got.shape}, right is {expected.shape}"
    wrong = np.abs(got - np.clip(steps + z_y, 0, 255)) > 0.501
    if wrong.any():
        break
print("got     ", got.ravel().tolist())
print("differs" if wrong.any() else "agrees")
sys.exit(int(wrong.any()))
