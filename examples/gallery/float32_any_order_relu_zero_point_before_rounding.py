"""float32_any_order: relu_zero_point_before_rounding

ExecuTorch hands a rectifier of 8-bit codes to XNNPACK, which adds the zero point before it rounds: a tie at an odd
zero point is one code off
Severity: design. Seen in executorch 1.5.1.
Case: relu(x: [16]) channels_first, data ties, found by generated cases of quantizer.
"""

from importlib.metadata import version
import sys

import executorch.kernels.quantized
import numpy as np
import torch
from executorch.backends.xnnpack.partition.xnnpack_partitioner import XnnpackPartitioner
from executorch.exir import EdgeCompileConfig, to_edge_transform_and_lower
from executorch.extension.pybindings.portable_lib import _load_for_executorch_from_buffer
from torch.ao.quantization.fx import _decomposed

x = np.array([-5, 1, 1, 3, -7, 7, 6, 3, 7, -7, 5, 5, -4, 1, -4, -7], np.int8)
s_x, z_x = 0.5, 0
s_y, z_y = 1.0, 1

# Right: the value of the codes in integers and float64, rounded once.
X = s_x * (x.astype(np.int64) - z_x)
real = np.maximum(X, 0)
steps = real / s_y
expected = np.clip(np.rint(steps) + z_y, -128, 127).astype(np.int64)

print(f"executorch {version('executorch')}, numpy {np.__version__}")
print("expected", expected.ravel().tolist(), flush=True)
Q = torch.ops.quantized_decomposed
class One(torch.nn.Module):
    def forward(self, x):
        x = Q.dequantize_per_tensor(x, s_x, z_x, -128, 127, torch.int8)
        real = torch.relu(x)
        return Q.quantize_per_tensor(real, s_y, z_y, -128, 127, torch.int8)
given = (torch.from_numpy(x),)
config = EdgeCompileConfig(_check_ir_validity=False)
exported = torch.export.export(One(), given)
parts = [XnnpackPartitioner()]
lowered = to_edge_transform_and_lower(exported, partitioner=parts, compile_config=config)
file = lowered.to_executorch().buffer
got = _load_for_executorch_from_buffer(file).run_method("forward", given)[0].numpy()
got = got.astype(np.int64)
assert got.shape == expected.shape, f"shape {got.shape}, right is {expected.shape}"
wrong = got != expected
print("got     ", got.ravel().tolist())
print("differs" if wrong.any() else "agrees")
sys.exit(int(wrong.any()))
