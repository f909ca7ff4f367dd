"""torch's quantized operators, on one thread unless asked for more."""

from __future__ import annotations

import itertools
import json
import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor

torch.set_num_threads(1)
warnings.simplefilter("ignore")
Array = NDArray[Any]
Made = Mapping[str, Any]
Q = torch.ops.quantized


def load(model: bytes, options: Mapping[str, str | int]) -> Callable[[dict[str, Tensor]], list[Tensor]]:
    """Return a session for the operator that *model* describes: a line of JSON, then the constants' bytes.

    The line of a program of several operators lists one description for each.
    """
    engine, threads = str(options["engine"]), int(options.get("threads", 1))
    torch.backends.quantized.engine = engine
    text, _, raw = model.partition(b"\n")
    made = json.loads(text)
    call = _program(made, raw) if "steps" in made else _alone(made, raw)

    def forward(x: dict[str, Tensor]) -> list[Tensor]:
        # Set in each run: a loaded operator is kept, and jobs of another engine may have run in between.
        torch.backends.quantized.engine = engine
        torch.set_num_threads(threads)
        return call(x)

    return forward


def _alone(made: Made, raw: bytes) -> Callable[[dict[str, Tensor]], list[Tensor]]:
    """Return one operator on codes."""
    call = _operator(made, raw)
    return lambda x: [call(quantized(made, x))]


def _operator(made: Made, raw: bytes) -> Callable[[dict[str, Tensor]], Tensor]:
    """Return one operator on quantized tensors."""
    constants, place = {}, 0
    for name, kind, shape in made["constants"]:
        values = np.frombuffer(raw, np.dtype(kind), int(np.prod(shape, dtype=np.int64)), place).reshape(shape)
        place += values.nbytes
        # a copy, because memory of a bytes object is read-only
        constants[name] = torch.from_numpy(values.copy())
    kind = made["kind"]
    # weights are packed once, when a session is loaded; the other functions have nothing to prepare
    prepare = PREPARED.get(kind)
    return (lambda x: FUNCTIONS[kind](made, constants, x)) if prepare is None else prepare(made, constants)


def _program(whole: Made, raw: bytes) -> Callable[[dict[str, Tensor]], list[Tensor]]:
    """Return several operators, in order; wired operands are the results of earlier ones, in the operator's order."""
    steps: Sequence[Made] = whole["steps"]
    ends = itertools.accumulate(step["bytes"] for step in steps)
    calls = [_operator(step, raw[end - step["bytes"] : end]) for step, end in zip(steps, ends, strict=True)]

    def forward(x: dict[str, Tensor]) -> list[Tensor]:
        results: list[Tensor] = []
        for number, (step, call) in enumerate(zip(steps, calls, strict=True)):
            earlier = {name: results[place] for name, place in step["wires"].items()}
            # the function before it has already applied the relu
            if step["is_fused"]:
                results.append(earlier["x"])
                continue
            fed = {name: x[f"{number}/{name}"] for name in step["inputs"] if name not in earlier}
            operands = quantized(step, fed) | {name: ordered(step, values) for name, values in earlier.items()}
            results.append(call({name: operands[name] for name in step["inputs"]}))
        return [results[place] for place in whole["outputs"]]

    return forward


def run(session: Callable[[dict[str, Tensor]], list[Tensor]], feeds: Mapping[str, Array]) -> list[Array]:
    """Return the codes of the outputs."""
    made = session({name: torch.from_numpy(values) for name, values in feeds.items()})
    return [y.int_repr().contiguous().numpy() for y in made]


def quantized(made: Made, feeds: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Return the activations as quantized tensors, images in the requested axis order; indices unchanged."""
    found = {name: indices for name, indices in feeds.items() if name not in made["inputs"]}
    for name, codes in ((name, codes) for name, codes in feeds.items() if name in made["inputs"]):
        scale, zero = made["inputs"][name]
        found[name] = ordered(made, torch._make_per_tensor_quantized_tensor(codes, scale, zero))
    return found


def ordered(made: Made, x: Tensor) -> Tensor:
    """Return an operand in the memory order that the operator gets."""
    return x.contiguous(memory_format=torch.channels_last if made["channels_last"] else torch.contiguous_format)


def weights(made: Made, constants: Mapping[str, Tensor]) -> Tensor:
    """Return the weights as a quantized tensor, per channel if there are several scales."""
    if "scales" not in constants:
        return torch._make_per_tensor_quantized_tensor(constants["weight"], made["weight_scale"], 0)
    zeros = torch.zeros(len(constants["scales"]), dtype=torch.int64)
    return torch._make_per_channel_quantized_tensor(
        constants["weight"], constants["scales"], zeros, made["channel_axis"]
    )


def convolution(made: Made, constants: Mapping[str, Tensor]) -> Callable[[dict[str, Tensor]], Tensor]:
    """Pack the weights. If padding differs between the sides, pad the input first."""
    rank = len(made["stride"])
    packed = getattr(Q, f"conv{rank}d_prepack")(
        weights(made, constants),
        constants.get("bias"),
        made["stride"],
        made["padding"],
        made["dilation"],
        made["groups"],
    )
    function = getattr(Q, f"conv{rank}d{made['suffix']}")

    def forward(x: dict[str, Tensor]) -> Tensor:
        found: Tensor = function(_around(made, x["x"]), packed, *made["output"])
        return found

    return forward


def transposed(made: Made, constants: Mapping[str, Tensor]) -> Callable[[dict[str, Tensor]], Tensor]:
    """Pack the weights. A crop at only one side is applied to the result afterwards."""
    packed = Q.conv_transpose2d_prepack(
        weights(made, constants),
        constants.get("bias"),
        made["stride"],
        made["padding"],
        made["output_padding"],
        made["dilation"],
        made["groups"],
    )

    def forward(x: dict[str, Tensor]) -> Tensor:
        y = Q.conv_transpose2d(x["x"], packed, *made["output"])
        (top, bottom), (left, right) = made["crop"]
        found: Tensor = y[:, :, top : y.shape[2] - bottom, left : y.shape[3] - right]
        # torch has no fused transposed convolution
        return torch.relu(found) if made["suffix"] else found

    return forward


def fully_connected(made: Made, constants: Mapping[str, Tensor]) -> Callable[[dict[str, Tensor]], Tensor]:
    """Pack the weights."""
    packed = Q.linear_prepack(weights(made, constants), constants.get("bias"))
    function = getattr(Q, f"linear{made['suffix']}")
    return lambda x: function(x["x"], packed, *made["output"])


def _around(made: Made, x: Tensor) -> Tensor:
    if not any(made["around"]):
        return x
    order = torch.channels_last if made["channels_last"] else torch.contiguous_format
    return F.pad(x, made["around"], value=made["fill"]).contiguous(memory_format=order)


def max_pool2d(made: Made, _: Mapping[str, Tensor], x: dict[str, Tensor]) -> Tensor:
    """Pad with the smallest code if torch's own padding cannot express it."""
    return F.max_pool2d(
        _around(made, x["x"]), made["kernel"], made["stride"], made["padding"], ceil_mode=made["ceil_mode"]
    )


def avg_pool2d(made: Made, _: Mapping[str, Tensor], x: dict[str, Tensor]) -> Tensor:
    """Pad with zeros if torch's own padding cannot express it."""
    return F.avg_pool2d(
        _around(made, x["x"]),
        made["kernel"],
        made["stride"],
        made["padding"],
        made["ceil_mode"],
        made["count_include_pad"],
    )


def batch_norm(made: Made, constants: Mapping[str, Tensor], x: dict[str, Tensor]) -> Tensor:
    """Pass factor and constant as affine parameters, with mean 0 and variance 1."""
    axis, values = made["axis"], x["x"]
    weight = constants["weight"]
    bias = constants.get("bias", torch.zeros_like(weight))
    # torch's batch norm has its channels at axis 1
    moved = values.transpose(axis, 1).contiguous()
    function = getattr(Q, {4: "batch_norm2d", 5: "batch_norm3d"}.get(values.dim(), "batch_norm1d"))
    y: Tensor = function(moved, weight, bias, torch.zeros_like(weight), torch.ones_like(weight), 0.0, *made["output"])
    return y.transpose(axis, 1)


def gather(made: Made, _: Mapping[str, Tensor], x: dict[str, Tensor]) -> Tensor:
    """Select by a flat list of indices counted from the front, as index_select needs them."""
    values, places = x["x"], x["indices"]
    axis = made["axis"] % values.dim()
    front = torch.where(places < 0, places + values.shape[axis], places)
    found = values.index_select(axis, front.reshape(-1))
    return found.reshape((*values.shape[:axis], *places.shape, *values.shape[axis + 1 :]))


def quantize(made: Made, _: Mapping[str, Tensor], x: dict[str, Tensor]) -> Tensor:
    """Quantize float32 numbers."""
    scale, zero = made["output"]
    return torch.quantize_per_tensor(x["x"], float(scale), int(zero), torch.quint8)


PREPARED: Mapping[str, Callable[[Made, Mapping[str, Tensor]], Callable[[dict[str, Tensor]], Tensor]]] = {
    "convolution": convolution,
    "conv_transpose2d": transposed,
    "fully_connected": fully_connected,
}
FUNCTIONS: Mapping[str, Callable[[Made, Mapping[str, Tensor], dict[str, Tensor]], Tensor]] = {
    "add": lambda made, _, x: getattr(Q, f"add{made['suffix']}")(x["a"], x["b"], *made["output"]),
    "mul": lambda made, _, x: getattr(Q, f"mul{made['suffix']}")(x["a"], x["b"], *made["output"]),
    "matmul": lambda made, _, x: Q.matmul(x["a"], x["b"], *made["output"]),
    "concat": lambda made, _, x: Q.cat(list(x.values()), made["axis"], *made["output"]),
    "relu": lambda _, __, x: torch.relu(x["x"]),
    "clip": lambda made, _, x: torch.clamp(x["x"], made["low"], made["high"]),
    "leaky_relu": lambda made, _, x: Q.leaky_relu(x["x"], made["slope"], False, *made["output"]),  # noqa: FBT003
    "sigmoid": lambda _, __, x: torch.sigmoid(x["x"]),
    "tanh": lambda _, __, x: torch.tanh(x["x"]),
    "softmax": lambda made, _, x: Q.softmax(x["x"], made["axis"], *made["output"]),
    "max_pool2d": max_pool2d,
    "avg_pool2d": avg_pool2d,
    "global_avg_pool2d": lambda _, __, x: F.adaptive_avg_pool2d(x["x"], (1, 1)),
    "reduce_mean": lambda made, _, x: x["x"].mean(made["axes"], keepdim=made["keepdims"]),
    "batch_norm": batch_norm,
    "transpose": lambda made, _, x: x["x"].permute(made["perm"]),
    "gather": gather,
    "quantize": quantize,
    "reshape": lambda made, _, x: x["x"].reshape(made["shape"]),
    "pad": lambda made, _, x: F.pad(x["x"], made["around"], value=made["value"]),
}
