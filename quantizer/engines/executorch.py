"""ExecuTorch: each case is exported from torch, lowered to XNNPACK if possible, and run by ExecuTorch's runtime.

Nodes that XNNPACK does not take run on the portable kernels, and their quantizations on ExecuTorch's quantized kernels.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from importlib.metadata import version
from typing import Any

import executorch.kernels.quantized  # noqa: F401 - registers the kernels of quantizations
import numpy as np
import torch
from executorch.backends.xnnpack.partition.xnnpack_partitioner import XnnpackPartitioner
from executorch.exir import EdgeCompileConfig, to_edge_transform_and_lower
from executorch.extension.pybindings.portable_lib import _load_for_executorch_from_buffer
from torch.ao.quantization.fx import _decomposed  # noqa: F401 - registers the operators of quantizations
from torch.nn import functional

NAME, VERSION, FORM, FLOATS = "executorch", version("executorch"), "npz", True
CONSTANTS = ("weight", "bias")
QUANTIZATION = torch.ops.quantized_decomposed
Made = Mapping[str, Any]
Values = dict[str, Any]


def _pads(made: Made) -> tuple[int, ...]:
    """Return the padding of each axis; torch's operators need the same padding on both sides."""
    pads = made["attrs"]["padding"]
    rank = len(pads) // 2
    if pads[:rank] != pads[rank:]:
        raise NotImplementedError("torch pads both sides of an axis alike")
    return tuple(pads[:rank])


def _convolved(made: Made, v: Values) -> Any:
    attrs, rank = made["attrs"], len(made["attrs"]["stride"])
    function = (functional.conv1d, functional.conv2d)[rank - 1]
    groups = attrs.get("groups", v["x"].shape[1])
    return function(v["x"], v["weight"], v.get("bias"), attrs["stride"], _pads(made), attrs["dilation"], groups)


def _pooled(made: Made, v: Values) -> Any:
    attrs = made["attrs"]
    pads = _pads(made)
    if any(2 * pad > size for pad, size in zip(pads, attrs["kernel"], strict=True)):
        raise NotImplementedError("torch pads by half a window at most")
    if made["op"] == "max_pool2d":
        return functional.max_pool2d(v["x"], attrs["kernel"], attrs["stride"], pads, 1, attrs["ceil_mode"])
    counted = attrs["count_include_pad"]
    return functional.avg_pool2d(v["x"], attrs["kernel"], attrs["stride"], pads, attrs["ceil_mode"], counted)


def _reduced(function: Callable[..., Any]) -> Callable[[Made, Values], Any]:
    return lambda made, v: function(v["x"], dim=tuple(made["attrs"]["axes"]), keepdim=made["attrs"]["keepdims"])


def _unary(function: Callable[[Any], Any]) -> Callable[[Made, Values], Any]:
    return lambda _, v: function(v["x"])


FUNCTIONS: Mapping[str, Callable[[Made, Values], Any]] = {
    "add": lambda _, v: v["a"] + v["b"],
    "sub": lambda _, v: v["a"] - v["b"],
    "mul": lambda _, v: v["a"] * v["b"],
    "div": lambda _, v: v["a"] / v["b"],
    "maximum": lambda _, v: torch.maximum(v["a"], v["b"]),
    "minimum": lambda _, v: torch.minimum(v["a"], v["b"]),
    "matmul": lambda _, v: torch.matmul(v["a"], v["b"]),
    "fully_connected": lambda _, v: functional.linear(v["x"], v["weight"], v.get("bias")),
    **dict.fromkeys(("conv1d", "conv2d", "depthwise_conv2d"), _convolved),
    **dict.fromkeys(("max_pool2d", "avg_pool2d"), _pooled),
    "global_avg_pool2d": lambda _, v: v["x"].mean((2, 3), keepdim=True),
    "reduce_mean": _reduced(torch.mean),
    "reduce_sum": _reduced(torch.sum),
    "softmax": lambda made, v: torch.softmax(v["x"], made["attrs"]["axis"]),
    "log_softmax": lambda made, v: torch.log_softmax(v["x"], made["attrs"]["axis"]),
    "leaky_relu": lambda made, v: functional.leaky_relu(v["x"], made["attrs"]["slope"]),
    "elu": lambda made, v: functional.elu(v["x"], made["attrs"]["alpha"]),
    "gelu": lambda made, v: functional.gelu(v["x"], approximate=made["attrs"]["approximate"]),
    "clip": lambda made, v: torch.clamp(v["x"], made["attrs"]["low"], made["attrs"]["high"]),
    "relu": _unary(torch.relu),
    "sigmoid": _unary(torch.sigmoid),
    "tanh": _unary(torch.tanh),
    "silu": _unary(functional.silu),
    "hard_swish": _unary(functional.hardswish),
    "exp": _unary(torch.exp),
    "log": _unary(torch.log),
    "sqrt": _unary(torch.sqrt),
    "rsqrt": _unary(torch.rsqrt),
    "reciprocal": _unary(torch.reciprocal),
    "abs": _unary(torch.abs),
    "negative": _unary(torch.neg),
    "square": _unary(torch.square),
    "sine": _unary(torch.sin),
    "cosine": _unary(torch.cos),
    "quantize": _unary(lambda x: x),
}
"""Operator -> its value on float32 operands."""
OPERATORS = [*FUNCTIONS]
ACTIVATIONS: Mapping[str, Callable[[Any], Any]] = {
    "none": lambda y: y,
    "relu": functional.relu,
    "relu6": functional.relu6,
}


def _ends(known: Made) -> tuple[Any, ...]:
    return known["lowest"], known["highest"], getattr(torch, known["type"])


def _real(codes: Any, known: Made) -> Any:
    """Return float32 values of codes, through the operator that the delegate looks for."""
    return QUANTIZATION.dequantize_per_tensor(codes, known["scale"], known["zero_point"], *_ends(known))


class Case(torch.nn.Module):
    """One operator from codes to codes; weights and bias are constants of the program, the bias as real numbers."""

    def __init__(self, made: Made, constants: Values) -> None:
        super().__init__()
        self.made = made
        for name, values in constants.items():
            known = made["inputs"].get(name)
            is_bias = name == "bias"
            # rounded once, to float32, below
            real = values * np.asarray(known["scale"], np.float64) if is_bias and known is not None else values
            if not is_bias and known is not None and isinstance(known["scale"], list):
                self.register_buffer(f"{name}_scales", torch.tensor(known["scale"], dtype=torch.float32))
                self.register_buffer(f"{name}_zeros", torch.tensor(known["zero_point"], dtype=torch.int64))
            self.register_buffer(name, torch.from_numpy(np.array(real, np.float32 if is_bias else None)))

    def forward(self, *given: Any) -> Any:
        """Return the codes of the result."""
        made, y = self.made, self.made["output"]
        held = {name: getattr(self, name) for name in CONSTANTS if name in made["operands"]}
        names = [name for name in made["operands"] if name not in CONSTANTS]
        values = {**dict(zip(names, given, strict=True)), **held}
        for name, codes in values.items():
            known = made["inputs"].get(name)
            if known is not None and name != "bias":
                values[name] = self._channels(name, known) if hasattr(self, f"{name}_scales") else _real(codes, known)
        found = ACTIVATIONS[made["activation"]](FUNCTIONS[made["op"]](made, values))
        return (
            found
            if y["type"] == "float32"
            else QUANTIZATION.quantize_per_tensor(found, y["scale"], y["zero_point"], *_ends(y))
        )

    def _channels(self, name: str, known: Made) -> Any:
        """Return float32 values of a constant with a scale for each channel; the delegate wants these as constants."""
        scales, zeros = getattr(self, f"{name}_scales"), getattr(self, f"{name}_zeros")
        codes = getattr(self, name)
        return QUANTIZATION.dequantize_per_channel(codes, scales, zeros, known["axis"] or 0, *_ends(known))


def load(model: bytes, options: dict[str, Any]) -> Any:
    """Return the case, and an empty cache of its programs by their constants, which arrive with the operands."""
    return json.loads(model), {}


def run(session: Any, feeds: dict[str, Any]) -> list[Any]:
    """Return the output."""
    made, programs = session
    operands = {name: values for name, values in feeds.items() if not name.startswith("table ")}
    constants = {name: operands[name] for name in CONSTANTS if name in operands}
    given = tuple(torch.from_numpy(np.array(v)) for name, v in operands.items() if name not in constants)
    # constants are part of a program: others need another program
    key = tuple(values.tobytes() for values in constants.values())
    if key not in programs:
        programs[key] = _compiled(Case({**made, "operands": [*operands]}, constants), given)
    program, _ = programs[key]
    return [program.run_method("forward", given)[0].numpy()]


def _compiled(case: Case, given: tuple[Any, ...]) -> tuple[Any, bytes]:
    """Return the loaded program of a case, and its file: the program reads it and does not keep it alive."""
    config = EdgeCompileConfig(_check_ir_validity=False)
    exported = torch.export.export(case, given)
    lowered = to_edge_transform_and_lower(exported, partitioner=[XnnpackPartitioner()], compile_config=config)
    file = lowered.to_executorch().buffer
    return _load_for_executorch_from_buffer(file), file
