"""torch_x86: depthwise_single_column_rows_wrong

oneDNN loses its place where several filters see each of four channels or more, there is one column of windows, and
the stride is larger along the columns: rows after the first are wrong
Severity: wrong. Seen in torch x86 2.13.0, 2.14.1, 2.15.0.
Kernels that show it: on processors with avx512_vnni, with onednn.avx512f.
Case: depthwise_conv2d(x: [3, 7, 1, 2], weight: [14, 1, 1, 3]) dilation=[1, 1] padding=[0, 1, 1, 1] stride=[1, 3]
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

x = np.array([[[[255, 41]], [[169, 240]], [[249, 2]], [[213, 156]], [[189, 149]], [[26, 154]], [[191, 225]]], [[[59,
    15]], [[1, 205]], [[108, 247]], [[168, 255]], [[255, 247]], [[39, 169]], [[45, 104]]], [[[127, 226]], [[118,
    204]], [[254, 172]], [[176, 251]], [[71, 119]], [[15, 119]], [[81, 255]]]], np.uint8)
s_x, z_x = 0.009173942729830742, 32
weight = np.array([[[[-127, 28, 0]]], [[[127, -36, 72]]], [[[43, -127, -32]]], [[[-85, -127, 55]]], [[[83, 105,
    -127]]], [[[104, 60, -127]]], [[[125, 21, 127]]], [[[-84, -84, 127]]], [[[32, 127, -118]]], [[[70, -127, 64]]],
    [[[84, -127, -114]]], [[[-44, -127, -111]]], [[[108, 55, -127]]], [[[-93, -127, 127]]]], np.int8)
s_weight = np.array([0.0015340512618422508, 0.001244564657099545, 0.001655115745961666, 0.0007723136222921312,
    0.0016686146846041083, 0.0008571686921641231, 0.0014810836873948574, 0.0015629255212843418, 0.0007262318977154791,
    0.001174480770714581, 0.0012023326708003879, 0.0013988331193104386, 0.0009428492048755288, 0.0016686146846041083])
z_weight = np.array([0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0])
s_y, z_y = 0.003085501492023468, 118

# Right: the value of the codes in integers and float64, rounded once.
X = np.pad(x.astype(np.int64) - z_x, [(0, 0), (0, 0), (0, 1), (1, 1)])
windows = np.lib.stride_tricks.sliding_window_view(X, (1, 3), (2, 3))[:, :, ::1, ::3, ::1, ::1]
windows = windows.reshape(len(x), 7, -1, *windows.shape[2:])
W = (weight.astype(np.int64)).reshape(7, -1, *weight.shape[1:])
sums = np.einsum("ngcyxij,gkcij->ngkyx", windows, W)
sums = sums.reshape(len(x), -1, *sums.shape[3:])
real = sums * (s_x * s_weight.reshape([1, -1, 1, 1]))
steps = real / s_y
expected = np.clip(np.rint(steps) + z_y, 0, 255).astype(np.int64)

print(f"torch {torch.__version__}, numpy {np.__version__}")
print("expected", expected.ravel()[:16].tolist(), flush=True)
Q = torch.ops.quantized
torch.backends.quantized.engine = "x86"
x_q = torch._make_per_tensor_quantized_tensor(torch.from_numpy(x), 0.009173942729830742, 32)
w_q = torch._make_per_channel_quantized_tensor(torch.from_numpy(np.ascontiguousarray(weight)),
    torch.tensor([0.0015340512618422508, 0.001244564657099545, 0.001655115745961666, 0.0007723136222921312,
    0.0016686146846041083, 0.0008571686921641231, 0.0014810836873948574, 0.0015629255212843418, 0.0007262318977154791,
    0.001174480770714581, 0.0012023326708003879, 0.0013988331193104386, 0.0009428492048755288, 0.0016686146846041083],
    dtype=torch.float32), torch.zeros(14, dtype=torch.int64), 0)
bias_f = None
packed = Q.conv2d_prepack(w_q, bias_f, [1, 3], [0, 1], [1, 1], 7)
y = Q.conv2d(torch.nn.functional.pad(x_q, [0, 0, 0, 1], value=0.0), packed, 0.003085501492023468, 118)
got = y.int_repr().numpy()
got = got.astype(np.int64)
assert got.shape == expected.shape, f"shape {got.shape}, right is {expected.shape}"
wrong = np.abs(got - np.clip(steps + z_y, 0, 255)) > 0.501
at = np.flatnonzero(wrong)[:8]
print("at element ", at.tolist())
print("expected is", expected.ravel()[at].tolist())
print("got         ", got.ravel()[at].tolist())
print("differs" if wrong.any() else "agrees")
sys.exit(int(wrong.any()))
