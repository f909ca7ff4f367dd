"""Small changes to codes: their sign, their width, their order, and which operand an operator reads as which."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from quantizer.numerics.qparams import Constant, Parameters, QParams, Staged
from quantizer.numerics.windows import torch_padding
from quantizer.ops.registry import Function


def wrapped(codes: Tensor, params: QParams) -> Tensor:
    """Read stored bits under the other sign."""
    bits = params.dtype.bits
    # the same bits as two's complement; signed codes modulo 2**bits are the bits read as unsigned
    turned = (codes + (1 << (bits - 1))) % (1 << bits) - (1 << (bits - 1))
    return codes % (1 << bits) if params.dtype.kind == "int" else turned


def first_operand_other_sign(original: Function) -> Function:
    """Read the stored bits of the first operand under the other sign."""

    def faulty(*, parameters: Parameters, **named: Any) -> Tensor | Staged:
        name = next(iter(parameters.inputs))
        changed = {**named, name: wrapped(named[name], parameters.inputs[name])}
        result: Tensor | Staged = original(parameters=parameters, **changed)
        return result

    return faulty


def output_other_sign(codes: Tensor, p: Parameters) -> Tensor:
    """Store codes under the other sign."""
    return wrapped(codes, p.outputs["y"])


def weight_change(change: Callable[[Tensor, QParams], Tensor]) -> Callable[[Function], Function]:
    """Let the forward see other codes of every weight."""

    def wrap(original: Function) -> Function:
        def faulty(*, parameters: Parameters, **named: Any) -> Tensor | Staged:
            # gamma is the weight of a normalisation
            held = {n: c for n, c in parameters.constants.items() if n in ("weight", "gamma") and n in named}
            changed = {name: change(named[name], constant.params) for name, constant in held.items()}
            result: Tensor | Staged = original(parameters=parameters, **{**named, **changed})
            return result

        return faulty

    return wrap


def swapped_nibbles(codes: Tensor, params: QParams) -> Tensor:
    """Read the two halves of each byte in the other order, where two codes share one."""
    flat = codes.flatten()
    even = flat.numel() // 2 * 2
    if params.dtype.bits != 4 or not even:
        return codes
    paired = flat[:even].reshape(-1, 2).flip(1).flatten()
    return torch.cat([paired, flat[even:]]).reshape(codes.shape)


def weight_zero(p: Parameters) -> Parameters:
    """Centre weights around 1 instead of 0."""
    constants = {
        name: Constant(c.codes, replace(c.params, zero_point=c.params.zero_point + (name in ("weight", "gamma"))))
        for name, c in p.constants.items()
    }
    return replace(p, constants=constants)


def zero_points(change: Callable[[Tensor], Tensor]) -> Callable[[Parameters], Parameters]:
    """Change the zero point of every input."""
    return lambda p: replace(
        p, inputs={name: replace(q, zero_point=change(q.zero_point)) for name, q in p.inputs.items()}
    )


def output_zero_sign(p: Parameters) -> Parameters:
    """Turn the sign of the output's zero point."""
    y = p.outputs["y"]
    return replace(p, outputs={**p.outputs, "y": replace(y, zero_point=-y.zero_point)})


def groups_interleaved(original: Function) -> Function:
    """Assign channels to groups in rotation, one at a time."""

    def faulty(*, x: Tensor, groups: int, **named: Any) -> Tensor | Staged:
        # [batch, channels / groups, groups, ...]: channel i goes to group i % groups
        dealt = x.unflatten(1, (-1, groups)).transpose(1, 2).flatten(1, 2) if groups > 1 else x
        result: Tensor | Staged = original(x=dealt, groups=groups, **named)
        return result

    return faulty


def filters_interleaved(original: Function) -> Function:
    """Assign filters to channels in rotation, one at a time."""

    def faulty(*, x: Tensor, weight: Tensor, **named: Any) -> Tensor | Staged:
        each = weight.shape[0] // max(x.shape[1], 1)
        # filter i goes to channel i % channels
        dealt = weight.unflatten(0, (each, -1)).transpose(0, 1).flatten(0, 1) if each > 1 else weight
        result: Tensor | Staged = original(x=x, weight=dealt, **named)
        return result

    return faulty


def padding_moved(padding: Sequence[int]) -> tuple[int, ...]:
    """Move one element of padding from the end of the first axis to its start.

    This is the difference between the two kinds of automatic padding, SAME_UPPER and SAME_LOWER.
    """
    half = len(padding) // 2
    if padding[half] < 1:
        return tuple(padding)
    return (padding[0] + 1, *padding[1:half], padding[half] - 1, *padding[half + 1 :])


def overhang_left_out(original: Function) -> Function:
    """Divide by the number of places inside the padded image, leaving out the part of a last window beyond it."""

    def faulty(
        *, x: Tensor, parameters: Parameters, padding: Sequence[int], count_include_pad: bool, **named: Any
    ) -> Tensor | Staged:
        if not count_include_pad:
            kept: Tensor | Staged = original(
                x=x, parameters=parameters, padding=padding, count_include_pad=False, **named
            )
            return kept
        # padding that became part of the image counts; what lies beyond it still does not
        wide = F.pad(x, torch_padding(padding), value=int(parameters.inputs["x"].zero_point))
        nothing = tuple(0 for _ in padding)
        result: Tensor | Staged = original(
            x=wide, parameters=parameters, padding=nothing, count_include_pad=False, **named
        )
        return result

    return faulty


def first_element(change: int) -> Callable[[Tensor, Parameters], Tensor]:
    """Move the first output code by *change* where that stays legal."""

    def changed(codes: Tensor, p: Parameters) -> Tensor:
        other = codes.clone()
        flat, y = other.view(-1), p.outputs["y"]
        if flat.numel():
            flat[0] = (flat[0] + change).clamp(y.qmin, y.qmax)
        return other

    return changed


def last_element(codes: Tensor, p: Parameters) -> Tensor:
    """Move the last output code down by one."""
    other = codes.clone()
    flat, y = other.view(-1), p.outputs["y"]
    if flat.numel():
        flat[-1] = (flat[-1] - 1).clamp(y.qmin, y.qmax)
    return other


def other_range(params: QParams) -> QParams:
    """Use full codes where they are restricted, and restricted ones where they are full."""
    low = params.dtype.min
    return replace(params, qmin=low + 1 if params.qmin == low else low)


def fill_unclamped(original: Function) -> Function:
    """Let the code of a fill value wrap instead of saturating."""

    def faulty(*, x: Tensor, parameters: Parameters, padding: Sequence[int], value: float) -> Tensor:
        right: Tensor = original(x=x, parameters=parameters, padding=padding, value=value)
        params = parameters.inputs["x"]
        code = int(torch.round(torch.tensor(value, dtype=torch.float64) / params.scale)) + int(params.zero_point)
        inside = tuple(slice(padding[i], padding[i] + size) for i, size in enumerate(x.shape))
        filled = torch.full_like(right, (code - params.dtype.min) % (1 << params.dtype.bits) + params.dtype.min)
        # only the filled places wrap
        filled[inside] = x
        return filled

    return faulty


def bfloat16(original: Function) -> Function:
    """Plant a float function that computes in bfloat16 and returns float32."""
    return lambda **named: original(
        **{k: v.bfloat16() if isinstance(v, Tensor) else v for k, v in named.items()}
    ).float()


def relative(by: float) -> Callable[[Function], Function]:
    """Increase every result by a fixed fraction of itself."""

    def wrap(original: Function) -> Function:
        return lambda **named: original(**named) * (1 + by)

    return wrap
