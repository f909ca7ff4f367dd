"""Writes a stand-alone script that makes the single torch call that a job describes."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from quantizer.core.errors import UnsupportedError
from quantizer.runtime.engines.frames import Array, Job
from quantizer.runtime.engines.scripts import Source, assigned, expression

Made = Mapping[str, Any]
_CALLS: Mapping[str, str] = {
    "add": "Q.add{suffix}(a_q, b_q, {out})",
    "mul": "Q.mul{suffix}(a_q, b_q, {out})",
    "matmul": "Q.matmul(a_q, b_q, {out})",
    "relu": "torch.relu(x_q)",
    "clip": "torch.clamp(x_q, {low}, {high})",
    "leaky_relu": "Q.leaky_relu(x_q, {slope}, False, {out})",
    "sigmoid": "torch.sigmoid(x_q)",
    "tanh": "torch.tanh(x_q)",
    "softmax": "Q.softmax(x_q, {axis}, {out})",
    "max_pool2d": "torch.nn.functional.max_pool2d({around}, {kernel}, {stride}, {padding}, ceil_mode={ceil_mode})",
    "avg_pool2d": "torch.nn.functional.avg_pool2d("
    "{around}, {kernel}, {stride}, {padding}, {ceil_mode}, {count_include_pad})",
    "global_avg_pool2d": "torch.nn.functional.adaptive_avg_pool2d(x_q, (1, 1))",
    "reduce_mean": "x_q.mean({axes}, keepdim={keepdims})",
    "transpose": "x_q.permute({perm})",
    "reshape": "x_q.reshape({shape})",
    "quantize": "torch.quantize_per_tensor(torch.from_numpy(x), {out}, torch.quint8)",
}
"""Kind of a job -> the call; kinds with packed weights have functions."""


def script(job: Job, known: Mapping[str, Array]) -> Source:
    """Return the call on quantized tensors; UnsupportedError if it needs more than one call."""
    text, _, raw = job.model.partition(b"\n")
    made = json.loads(text)
    constants = _constants(made, raw)
    write = _PACKED.get(made["kind"])
    if write is None and made["kind"] not in _CALLS:
        raise UnsupportedError(f"--form=torch: no script calls torch's {made['kind']}")
    lines = ["Q = torch.ops.quantized", f'torch.backends.quantized.engine = "{job.options["engine"]}"']
    for name in made["inputs"]:
        codes = expression(job.feeds[name], known)
        scale, zero = made["inputs"][name]
        tensor = f"torch._make_per_tensor_quantized_tensor(torch.from_numpy({codes}), {scale!r}, {zero})"
        lines += assigned(f"{name}_q", tensor)
        if made["channels_last"]:
            lines.append(f"{name}_q = {name}_q.contiguous(memory_format=torch.channels_last)")
    if write is None:
        lines += assigned("y", _CALLS[made["kind"]].format(**_fields(made)))
    else:
        lines += write(made, constants, known)
    return Source(("import torch",), ("torch {torch.__version__}",), (*lines, "got = y.int_repr().numpy()"))


def _constants(made: Made, raw: bytes) -> dict[str, Array]:
    found, place = {}, 0
    for name, kind, shape in made["constants"]:
        values = np.frombuffer(raw, np.dtype(kind), int(np.prod(shape, dtype=np.int64)), place).reshape(shape)
        place += values.nbytes
        found[name] = values
    return found


def _fields(made: Made) -> dict[str, Any]:
    """Return the values that the texts of calls refer to; numbers as Python writes them."""
    scale, zero = made["output"]
    return {**made, "out": f"{scale!r}, {zero}", "around": _around(made)}


def _around(made: Made) -> str:
    """Return the input, padded first where the operator cannot express the padding."""
    if not any(made.get("around", ())):
        return "x_q"
    return f"torch.nn.functional.pad(x_q, {made['around']}, value={made['fill']!r})"


def _weights(made: Made, constants: Mapping[str, Array], known: Mapping[str, Array]) -> list[str]:
    """Return the lines that set `w_q` and `bias_f`."""
    codes = f"torch.from_numpy(np.ascontiguousarray({expression(constants['weight'], known)}))"
    if "scales" in constants:
        scales = f"torch.tensor({constants['scales'].tolist()}, dtype=torch.float32)"
        zeros = f"torch.zeros({len(constants['scales'])}, dtype=torch.int64)"
        made_of = f"torch._make_per_channel_quantized_tensor({codes}, {scales}, {zeros}, {made['channel_axis']})"
    else:
        made_of = f"torch._make_per_tensor_quantized_tensor({codes}, {made['weight_scale']!r}, 0)"
    bias = f"torch.tensor({constants['bias'].tolist()}, dtype=torch.float32)" if "bias" in constants else "None"
    return [*assigned("w_q", made_of), *assigned("bias_f", bias)]


def _convolution(made: Made, constants: Mapping[str, Array], known: Mapping[str, Array]) -> list[str]:
    rank = len(made["stride"])
    numbers = f"{made['stride']}, {made['padding']}, {made['dilation']}, {made['groups']}"
    return [
        *_weights(made, constants, known),
        f"packed = Q.conv{rank}d_prepack(w_q, bias_f, {numbers})",
        *assigned("y", f"Q.conv{rank}d{made['suffix']}({_around(made)}, packed, {_fields(made)['out']})"),
    ]


def _transposed(made: Made, constants: Mapping[str, Array], known: Mapping[str, Array]) -> list[str]:
    numbers = ", ".join(str(made[name]) for name in ("stride", "padding", "output_padding", "dilation", "groups"))
    (top, bottom), (left, right) = made["crop"]
    cropped = [f"y = y[:, :, {top} : y.shape[2] - {bottom}, {left} : y.shape[3] - {right}]"]
    return [
        *_weights(made, constants, known),
        f"packed = Q.conv_transpose2d_prepack(w_q, bias_f, {numbers})",
        f"y = Q.conv_transpose2d(x_q, packed, {_fields(made)['out']})",
        *(cropped if any((top, bottom, left, right)) else []),
        *(["y = torch.relu(y)"] if made["suffix"] else []),
    ]


def _fully_connected(made: Made, constants: Mapping[str, Array], known: Mapping[str, Array]) -> list[str]:
    return [
        *_weights(made, constants, known),
        "packed = Q.linear_prepack(w_q, bias_f)",
        f"y = Q.linear{made['suffix']}(x_q, packed, {_fields(made)['out']})",
    ]


_PACKED: Mapping[str, Callable[[Made, Mapping[str, Array], Mapping[str, Array]], list[str]]] = {
    "convolution": _convolution,
    "conv_transpose2d": _transposed,
    "fully_connected": _fully_connected,
}
