"""A worker's system that says which kernels torch's libraries take."""

import numpy as np
import torch

torch.set_num_threads(1)


def load(model, options):
    torch.backends.quantized.engine = "x86"


def run(session, feeds):
    """Return ATen's capability as text, and a code of oneDNN's and of fbgemm's that pairs of products saturate."""
    capability = torch.backends.cpu.get_cpu_capability().encode()
    return [np.frombuffer(capability, np.uint8), np.array([convolution(), product()], np.int64)]


def quantized(shape, code, dtype):
    return torch._make_per_tensor_quantized_tensor(torch.full(shape, code, dtype=dtype), 0.01, 0)


def convolution():
    weight = torch.ops.quantized.conv2d_prepack(
        quantized((32, 64, 1, 1), 127, torch.int8), None, [1, 1], [0, 0], [1, 1], 1
    )
    return int(torch.ops.quantized.conv2d(quantized((1, 64, 2, 2), 255, torch.uint8), weight, 1.0, 0).int_repr().max())


def product():
    weight = torch.ops.quantized.linear_prepack(quantized((32, 64), 127, torch.int8), None)
    return int(torch.ops.quantized.linear(quantized((4, 64), 255, torch.uint8), weight, 1.0, 0).int_repr().max())
