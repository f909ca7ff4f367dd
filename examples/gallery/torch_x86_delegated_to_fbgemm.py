"""torch_x86: delegated_to_fbgemm

without VNNI torch hands these to fbgemm: the zero point is added after the rounding, and pairs of products saturate;
platform torch_fbgemm describes them
Severity: design. Seen in torch x86 2.13.0, 2.14.1, 2.15.0.
Kernels that show it: on processors without avx512_vnni.
Case: conv2d(x: [1, 1, 1, 1], weight: [19, 1, 1, 1], bias: [19]) dilation=[1, 1] groups=1 padding=[0, 0, 0, 0]
stride=[1, 1] channels_first, data ties, found by generated cases of quantizer.
"""

import os
import sys

os.environ["ATEN_CPU_CAPABILITY"] = "avx2"
os.environ["ONEDNN_MAX_CPU_ISA"] = "AVX2"
os.environ["FBGEMM_ENABLE_INSTRUCTIONS"] = "AVX2"
os.environ["MKL_CBWR"] = "COMPATIBLE"

import numpy as np
import torch

x = np.array([[[[129]]]], np.uint8)
s_x, z_x = 0.0625, 128
weight = np.array([[[[0]]], [[[0]]], [[[0]]], [[[0]]], [[[0]]], [[[0]]], [[[0]]], [[[0]]], [[[0]]], [[[0]]], [[[0]]],
    [[[0]]], [[[0]]], [[[0]]], [[[0]]], [[[0]]], [[[0]]], [[[0]]], [[[127]]]], np.int8)
s_weight = np.array([1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0,
    0.0078125])
z_weight = np.array([0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0])
bias = np.array([0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, -14811264], np.int32)
s_bias = np.array([0.0625, 0.0625, 0.0625, 0.0625, 0.0625, 0.0625, 0.0625, 0.0625, 0.0625, 0.0625, 0.0625, 0.0625,
    0.0625, 0.0625, 0.0625, 0.0625, 0.0625, 0.0625, 0.00048828125])
z_bias = np.array([0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0])
s_y, z_y = 128.0, 128

# Right: what the arithmetic declared for torch_x86 gives, restated in integers.
expected = np.array([[[[128]], [[128]], [[128]], [[128]], [[128]], [[128]], [[128]], [[128]], [[128]], [[128]],
    [[128]], [[128]], [[128]], [[128]], [[128]], [[128]], [[128]], [[128]], [[72]]]], np.int64)

print(f"torch {torch.__version__}, numpy {np.__version__}")
print("expected", expected.ravel()[:16].tolist(), flush=True)
Q = torch.ops.quantized
torch.backends.quantized.engine = "x86"
x_q = torch._make_per_tensor_quantized_tensor(torch.from_numpy(x), 0.0625, 128)
w_q = torch._make_per_channel_quantized_tensor(torch.from_numpy(np.ascontiguousarray(weight)), torch.tensor([1.0, 1.0,
    1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 0.0078125], dtype=torch.float32),
    torch.zeros(19, dtype=torch.int64), 0)
bias_f = torch.tensor([0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0,
    -7232.0625], dtype=torch.float32)
packed = Q.conv2d_prepack(w_q, bias_f, [1, 1], [0, 0], [1, 1], 1)
y = Q.conv2d(x_q, packed, 128.0, 128)
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
