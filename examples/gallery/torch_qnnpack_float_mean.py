"""torch_qnnpack: float_mean

a mean of other axes than the last ones is that of float32 values, added in an order that depends on the other axes
Severity: design. Seen in torch qnnpack.
Case: reduce_mean(x: [1, 3, 4, 4]) axes=[0, 1, 2] keepdims=True channels_first tiles=d33, data corners, found by
generated cases of quantizer.
"""

import sys

import numpy as np
import torch

x = np.array([[[[191, 255, 191, 191], [191, 0, 191, 191], [191, 255, 191, 191], [191, 0, 191, 191]], [[191, 255, 191,
    191], [191, 255, 191, 191], [191, 255, 191, 191], [191, 255, 191, 191]], [[191, 0, 191, 191], [191, 0, 191, 191],
    [191, 0, 191, 191], [191, 0, 191, 191]]]], np.uint8)
s_x, z_x = 0.0071844360791146755, 191
s_y, z_y = 0.0071844360791146755, 191

# Right: the same numbers computed in parts (d3 3): neither order is wrong alone.
expected = np.array([[[[191, 127, 191, 191]]]], np.int64)

print(f"torch {torch.__version__}, numpy {np.__version__}")
print("expected", expected.ravel().tolist(), flush=True)
Q = torch.ops.quantized
torch.backends.quantized.engine = "qnnpack"
x_q = torch._make_per_tensor_quantized_tensor(torch.from_numpy(x), 0.0071844360791146755, 191)
y = x_q.mean([0, 1, 2], keepdim=True)
got = y.int_repr().numpy()
got = got.astype(np.int64)
assert got.shape == expected.shape, f"shape {got.shape}, right is {expected.shape}"
wrong = got != expected
print("got     ", got.ravel().tolist())
print("differs" if wrong.any() else "agrees")
sys.exit(int(wrong.any()))
