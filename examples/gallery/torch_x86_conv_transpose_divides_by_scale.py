"""torch_x86: conv_transpose_divides_by_scale

oneDNN hands transposed convolutions that its vector kernels refuse to a matrix product (gemm_s8u8s32), which divides
by the scale of the output where the others multiply by its inverse: next to a tie a code differs by one
Severity: off by one. Seen in torch x86 2.13.0, 2.14.1, 2.15.0.
Kernels that show it: on processors with avx512_vnni.
Case: conv_transpose2d(x: [1, 3, 1, 1], weight: [2, 3, 1, 1], bias: [6]) dilation=[2, 1] groups=3 output_padding=[0,
0] padding=[0, 0, 0, 0] stride=[1, 2] channels_first, data near_ties, found by generated cases of quantizer.
"""

import os
import sys

os.environ["ATEN_CPU_CAPABILITY"] = "avx512"
os.environ["ONEDNN_MAX_CPU_ISA"] = "AVX512_CORE_VNNI"
os.environ["FBGEMM_ENABLE_INSTRUCTIONS"] = "AVX512_E1"
os.environ["MKL_CBWR"] = "COMPATIBLE"

import numpy as np
import torch

x = np.array([[[[24]], [[26]], [[24]]]], np.uint8)
s_x, z_x = 0.0018408681498840451, 24
weight = np.array([[[[0]], [[0]], [[0]]], [[[0]], [[-127]], [[0]]]], np.int8)
s_weight, z_weight = 0.019008807837963104, 0
bias = np.array([0, 0, 0, -567489, 0, 0], np.int32)
s_bias, z_bias = 3.499271042528562e-05, 0
s_y, z_y = 0.12776120007038116, 183

# Right: what the arithmetic declared for torch_x86 gives, restated in integers.
expected = np.array([[[[183]], [[183]], [[183]], [[27]], [[183]], [[183]]]], np.int64)

print(f"torch {torch.__version__}, numpy {np.__version__}")
print("expected", expected.ravel().tolist(), flush=True)
Q = torch.ops.quantized
torch.backends.quantized.engine = "x86"
x_q = torch._make_per_tensor_quantized_tensor(torch.from_numpy(x), 0.0018408681498840451, 24)
w_q = torch._make_per_tensor_quantized_tensor(torch.from_numpy(np.ascontiguousarray(weight.swapaxes(0, 1))),
    0.019008807837963104, 0)
bias_f = torch.tensor([0.0, 0.0, 0.0, -19.85797882080078, 0.0, 0.0], dtype=torch.float32)
packed = Q.conv_transpose2d_prepack(w_q, bias_f, [1, 2], [0, 0], [0, 0], [2, 1], 3)
y = Q.conv_transpose2d(x_q, packed, 0.12776120007038116, 183)
got = y.int_repr().numpy()
got = got.astype(np.int64)
assert got.shape == expected.shape, f"shape {got.shape}, right is {expected.shape}"
wrong = got != expected
print("got     ", got.ravel().tolist())
print("differs" if wrong.any() else "agrees")
sys.exit(int(wrong.any()))
