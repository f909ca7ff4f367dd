"""torch_x86: grouped_conv_single_column_rows_wrong

oneDNN's brg_conv_fwd loses its place in a grouped convolution of one input and several filters a group, where there
is one column of windows and the stride is larger along the columns: rows after the first are wrong; a tile that is
one column wide is such an image
Severity: wrong. Seen in torch x86 2.13.0, 2.14.1, 2.15.0.
Kernels that show it: on processors with avx512_vnni, with onednn.avx512f.
Case: conv2d(x: [1, 8, 3, 4], weight: [128, 1, 2, 2]) dilation=[1, 1] groups=8 padding=[0, 0, 0, 0] stride=[1, 2]
channels_first tiles=ow1, data random, found by generated cases of quantizer.
"""

import base64
import os
import sys
import zlib

os.environ["ATEN_CPU_CAPABILITY"] = "avx512"
os.environ["ONEDNN_MAX_CPU_ISA"] = "AVX512_CORE_VNNI"
os.environ["FBGEMM_ENABLE_INSTRUCTIONS"] = "AVX512_E1"
os.environ["MKL_CBWR"] = "COMPATIBLE"

import numpy as np
import torch

x = np.array([[[[150, 95, 189, 156], [204, 166, 97, 88], [64, 33, 150, 84]], [[229, 63, 64, 152], [29, 83, 86, 187],
    [49, 37, 163, 89]], [[240, 223, 11, 92], [132, 131, 255, 180], [101, 135, 123, 196]], [[43, 192, 199, 234], [194,
    132, 203, 86], [32, 0, 182, 158]], [[109, 0, 42, 98], [34, 153, 116, 3], [77, 125, 39, 123]], [[198, 214, 95,
    147], [192, 59, 174, 151], [225, 202, 152, 136]], [[106, 148, 35, 50], [73, 212, 108, 135], [147, 166, 163, 164]],
    [[88, 38, 59, 81], [237, 83, 113, 15], [209, 233, 208, 137]]]], np.uint8)
s_x, z_x = 0.003921568859368563, 0
weight = np.frombuffer(zlib.decompress(base64.b64decode(
    "eNoBAAL//dSBoVN/+yqI8vpxGwrTFOGxJ1jM0N9/lmLxc7XPXgy3sn/Rf8etpZowNltr1GMemNZ6JguBGAkdf6QVgQu1C4Fm7yatYcfkB5ikNPdu"
    "7n/F+UTD3/h/MH/SjaNRlUFFfzgwzGu7LpTnd7Sv9Y90C9QglY0Jnn/Ppz/wjOLxg6/nH0Bkz2UBooR3X3IeZniVuc0FL52sgXVx7Xm3/JiMCdV9"
    "kXfh+UcEkXUFi2p+CoF+f4HNrFikgcOCve5KGTRMzuV6dRjiIoE5drlVWOofun2hu7wLB7urf0cS1ULA6kirqPPgvF81vUDoHYq08S3gHPH3qJhn"
    "GRymbbR7MF3abcw2gbHFhOxenBjWe2/voM8nVXbZvn/Ei/beb8NTf+7vJ1e6U+uB5nWgz6+7WlWOakcOb50qgb88E/2GxVmH7GMV491hUJLYmVTv"
    "MPhzYVWSMEY8ASjdm3+HHAP9zIs0uB6+CyXp+9OEvg6VRm8Xg870JyAohTzo+uxVzL/IpyLGBW5UCXRTf5bczombzZvZRWHVG0AvVWdSWaiWZQ34"
    "bpOMDaNRXyiameAqf2og8Io7ZQGR5gJ/m2bz+F38VqNfv/zCtdfUUJZdSJlAGccdXGiYvDn/f/JZI5njTf3RVHOoDa718/JhPNATrgiyWYZEWp7v"
    "4mQj8nkpIwlfZ02+TU8Z+WQIDA=="
)), np.int8).reshape([128, 1, 2, 2])
s_weight, z_weight = 0.007874015718698502, 0
s_y, z_y = 0.01568627543747425, 128

# Right: the value of the codes in integers and float64, rounded once.
X = x.astype(np.int64) - z_x
windows = np.lib.stride_tricks.sliding_window_view(X, (2, 2), (2, 3))[:, :, ::1, ::2, ::1, ::1]
windows = windows.reshape(len(x), 8, -1, *windows.shape[2:])
W = (weight.astype(np.int64)).reshape(8, -1, *weight.shape[1:])
sums = np.einsum("ngcyxij,gkcij->ngkyx", windows, W)
sums = sums.reshape(len(x), -1, *sums.shape[3:])
real = sums * (s_x * s_weight)
steps = real / s_y
expected = np.clip(np.rint(steps) + z_y, 0, 255).astype(np.int64)

print(f"torch {torch.__version__}, numpy {np.__version__}")
print("expected", expected.ravel()[:16].tolist(), flush=True)
Q = torch.ops.quantized
torch.backends.quantized.engine = "x86"
x_q = torch._make_per_tensor_quantized_tensor(torch.from_numpy(x), 0.003921568859368563, 0)
w_q = torch._make_per_tensor_quantized_tensor(torch.from_numpy(np.ascontiguousarray(weight)), 0.007874015718698502, 0)
bias_f = None
packed = Q.conv2d_prepack(w_q, bias_f, [1, 2], [0, 0], [1, 1], 8)
y = Q.conv2d(x_q, packed, 0.01568627543747425, 128)
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
