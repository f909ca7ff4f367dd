"""float32_any_order: executorch_add_rounds_half_up

ExecuTorch hands sums of 8-bit codes to XNNPACK, whose factors have 21 bits and which rounds half up: 0.5 gives the
code 1, where QuantizeLinear rounds half to even
Severity: design. Seen in executorch 1.5.1.
Cause: XNNPACK multiplies codes by integers of 21 bits, and rounds the shifted sum half up.
Case: add(a: [3, 4], b: [3, 4]) channels_first, data ties, found by generated cases of quantizer.
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

a = np.array([[-70, -81, -79, -77], [-74, -77, -80, -71], [-72, -77, -79, -70]], np.int8)
s_a, z_a = 2.0, -75
b = np.array([[53, 42, 45, 41], [49, 41, 53, 48], [46, 42, 51, 46]], np.int8)
s_b, z_b = 0.25, 48
s_y, z_y = 0.5, 5

# Right: the value of the codes in integers and float64, rounded once.
A = s_a * (a.astype(np.int64) - z_a)
B = s_b * (b.astype(np.int64) - z_b)
real = A + B
steps = real / s_y
expected = np.clip(np.rint(steps) + z_y, -128, 127).astype(np.int64)

print(f"executorch {version('executorch')}, numpy {np.__version__}")
print("expected", expected.ravel().tolist(), flush=True)
Q = torch.ops.quantized_decomposed
class One(torch.nn.Module):
    def forward(self, a, b):
        a = Q.dequantize_per_tensor(a, s_a, z_a, -128, 127, torch.int8)
        b = Q.dequantize_per_tensor(b, s_b, z_b, -128, 127, torch.int8)
        real = a + b
        return Q.quantize_per_tensor(real, s_y, z_y, -128, 127, torch.int8)
given = (torch.from_numpy(a), torch.from_numpy(b),)
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
