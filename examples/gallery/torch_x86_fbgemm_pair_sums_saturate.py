"""torch_x86: fbgemm_pair_sums_saturate

fbgemm multiplies matrices, and convolves where the output is padded; held to fewer instructions
(FBGEMM_ENABLE_INSTRUCTIONS), it adds the products of raw codes and weights in pairs in int16, which saturates
(vpmaddubsw)
Severity: wrong. Seen in torch x86 2.13.0, 2.14.1, 2.15.0.
Cause: vpmaddubsw adds two products in int16 with saturation.
Kernels that show it: on processors with avx512_vnni, without fbgemm.avx512_vnni.
See also https://github.com/pytorch/pytorch/issues/44939
See also https://github.com/pytorch/FBGEMM/issues/125
Case: fully_connected(x: [1, 5], weight: [1, 5]) channels_first, data accumulator_limit, found by generated cases of
quantizer.
"""

import os
import sys

os.environ["FBGEMM_ENABLE_INSTRUCTIONS"] = "AVX512_256"

import numpy as np
import torch

x = np.full([1, 5], 255, np.uint8)
s_x, z_x = 0.003921568859368563, 0
weight = np.full([1, 5], 127, np.int8)
s_weight, z_weight = np.array([0.007874015718698502]), np.array([0])
s_y, z_y = 8.635293960571289, 128

# Right: the value of the codes in integers and float64, rounded once.
sums = (x.astype(np.int64) - z_x) @ (weight.astype(np.int64)).T
real = sums * (s_x * s_weight)
steps = real / s_y
expected = np.clip(np.rint(steps) + z_y, 0, 255).astype(np.int64)

print(f"torch {torch.__version__}, numpy {np.__version__}")
print("expected", expected.ravel().tolist(), flush=True)
Q = torch.ops.quantized
torch.backends.quantized.engine = "x86"
x_q = torch._make_per_tensor_quantized_tensor(torch.from_numpy(x), 0.003921568859368563, 0)
w_q = torch._make_per_channel_quantized_tensor(torch.from_numpy(np.ascontiguousarray(weight)),
    torch.tensor([0.007874015718698502], dtype=torch.float32), torch.zeros(1, dtype=torch.int64), 0)
bias_f = None
packed = Q.linear_prepack(w_q, bias_f)
y = Q.linear(x_q, packed, 8.635293960571289, 128)
got = y.int_repr().numpy()
got = got.astype(np.int64)
assert got.shape == expected.shape, f"shape {got.shape}, right is {expected.shape}"
wrong = np.abs(got - np.clip(steps + z_y, 0, 255)) > 0.501
print("got     ", got.ravel().tolist())
print("differs" if wrong.any() else "agrees")
sys.exit(int(wrong.any()))
