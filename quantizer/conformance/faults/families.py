"""Changes for some operator families only: windows, sums, tables, movement, fused activations."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from quantizer.core.case import TilePlan
from quantizer.core.rounding_modes import RoundingMode
from quantizer.core.spec import Spec
from quantizer.numerics.qparams import Parameters, Staged, Table
from quantizer.numerics.request import Request
from quantizer.numerics.windows import torch_padding
from quantizer.ops.registry import Function
from quantizer.tiling.windows import Tile, tiles

Wrap = Callable[[Function], Function]


def operand_change(*names: str, change: Callable[[Tensor, Parameters], Tensor]) -> Wrap:
    """Change the operands *names* before the integer forward reads them. Absent operands stay absent."""

    def wrap(original: Function) -> Function:
        def faulty(*operands: Tensor, parameters: Parameters, **named: Any) -> Tensor | Staged:
            seen = {name: named[name] for name in names if named.get(name) is not None}
            changed = named | {name: change(values, parameters) for name, values in seen.items()}
            result: Tensor | Staged = original(*operands, parameters=parameters, **changed)
            return result

        return faulty

    return wrap


def at_zero_point(name: str) -> Callable[[Tensor, Parameters], Tensor]:
    """Return a change that sets all codes of an activation to its zero point."""
    return lambda codes, p: torch.zeros_like(codes) + p.inputs[name].zero_point


def last_at_zero_point(codes: Tensor, p: Parameters) -> Tensor:
    """Leave out the last element of each row of x from its sum."""
    changed = codes.clone()
    # a code at the zero point adds nothing to a sum
    changed[..., -1] = p.inputs["x"].zero_point
    return changed


def rolled(axis: int) -> Callable[[Tensor, Parameters], Tensor]:
    """Return a change that gives each slice along *axis* the codes of its neighbour."""
    return lambda codes, p: codes.roll(1, axis)  # noqa: ARG005


def flipped_kernel(codes: Tensor, p: Parameters) -> Tensor:  # noqa: ARG001 - required by the common signature
    """Rotate filters by 180 degrees."""
    return codes.flip(*range(2, codes.dim()))


def raw_padding(value: Callable[[Parameters], int]) -> Wrap:
    """Pad the input with a given code before the forward, which then adds no padding."""

    def wrap(original: Function) -> Function:
        def faulty(*, x: Tensor, parameters: Parameters, padding: Sequence[int], **named: Any) -> Tensor | Staged:
            wide = F.pad(x, torch_padding(padding), value=value(parameters))
            nothing = tuple(0 for _ in padding)
            result: Tensor | Staged = original(x=wide, parameters=parameters, padding=nothing, **named)
            return result

        return faulty

    return wrap


def first_factor(p: Parameters) -> Parameters:
    """Bring all operands to the output by the factor of the first."""
    if p.rescale is None:
        return p
    first = next(iter(p.rescale.factors.values()), 1.0)
    return replace(p, rescale=replace(p.rescale, factors=dict.fromkeys(p.rescale.factors, first)))


def first_zero(p: Parameters) -> Parameters:
    """Centre all operands with the zero point of the first."""
    first = next(iter(p.inputs.values())).zero_point
    return replace(p, inputs={name: replace(params, zero_point=first) for name, params in p.inputs.items()})


def last_input_zero(p: Parameters) -> Parameters:
    """Move the zero point of the last input by one."""
    name = list(p.inputs)[-1]
    moved = replace(p.inputs[name], zero_point=p.inputs[name].zero_point - 1)
    return replace(p, inputs={**p.inputs, name: moved})


def turned_table(table: Table) -> Table:
    """Read the table with an unsigned index."""
    return replace(table, entries=table.entries.roll(table.entries.numel() // 2))


def one_wrong_entry(table: Table) -> Table:
    """Raise the middle entry by one."""
    entries = table.entries.clone()
    entries[entries.numel() // 2] += 1
    return replace(table, entries=entries)


def tables_rounded(mode: RoundingMode) -> Wrap:
    """Round the entries of provided tables in another mode."""

    def wrap(original: Function) -> Function:
        def faulty(request: Request) -> Parameters:
            other = request.platform.model_copy(update={"rounding": mode})
            found: Parameters = original(replace(request, platform=other))
            # only the tables were made with the other mode: the forward must see the true platform
            return replace(found, platform=request.platform)

        return faulty

    return wrap


def last_code_unread(codes: Tensor, p: Parameters) -> Tensor:
    """Read the entry before the last for the largest code."""
    return codes.clamp(max=p.inputs["x"].qmax - 1)


def six_less_one(codes: Tensor, p: Parameters) -> Tensor:
    """Cut a fused relu6 one code early."""
    output = p.outputs["y"]
    top = torch.round(6.0 / output.scale).long() + output.zero_point - 1
    return codes.minimum(top.clamp(min=output.qmin)) if p.activation == "relu6" else codes


def filled_half_up(original: Function) -> Function:
    """Round a fill value half up."""

    def faulty(*operands: Tensor, parameters: Parameters, **named: Any) -> Tensor:
        quantizer = parameters.platform.quantizer.model_copy(update={"rounding": "half_up"})
        platform = parameters.platform.model_copy(update={"quantizer": quantizer})
        result: Tensor = original(*operands, parameters=replace(parameters, platform=platform), **named)
        return result

    return faulty


def last_copied(original: Function) -> Function:
    """Copy the codes of the last operand of a concatenation, changing only their zero point."""

    def faulty(*operands: Tensor, parameters: Parameters, axis: int, **named: Any) -> Tensor:
        whole: Tensor = original(*operands, parameters=parameters, axis=axis, **named)
        name, last = [item for item in named.items() if item[1] is not None][-1]
        output = parameters.outputs["y"]
        copied = last - parameters.inputs[name].zero_point + output.zero_point
        whole.narrow(axis, whole.shape[axis] - last.shape[axis], last.shape[axis]).copy_(
            copied.clamp(output.qmin, output.qmax)
        )
        return whole

    return faulty


def fused_as(names: Mapping[str, str]) -> Callable[[Parameters], Parameters]:
    """Return a change that computes fused activations as others, by *names*."""
    return lambda p: replace(
        p, platform=p.platform.model_copy(update={"activations": {**p.platform.activations, **names}})
    )


def float32_accumulator(p: Parameters) -> Parameters:
    """Round the accumulator to float32 before it is multiplied."""
    accumulator = p.platform.accumulator.model_copy(update={"float32_before": [p.activation]})
    return replace(p, platform=p.platform.model_copy(update={"accumulator": accumulator}))


def folded(fold: Callable[..., Tensor], dtype: torch.dtype) -> Wrap:
    """Compute *fold* in a given type.

    A float type gets dequantized values; an integer type gets centred codes and wraps.
    """

    def wrap(original: Function) -> Function:  # noqa: ARG001 - a fault of the whole forward
        def faulty(*, x: Tensor, parameters: Parameters, axes: Sequence[int], keepdims: bool) -> Tensor:
            own, out = parameters.inputs["x"], parameters.outputs["y"]
            centred = (x - own.zero_point).to(dtype)
            if dtype.is_floating_point:
                steps = fold(centred * own.scale.to(dtype), axes, keepdims) / out.scale.to(dtype)
            else:
                # an integer fold keeps units of scale**terms for a product; a single division brings it to output codes
                terms = math.prod(x.shape[axis] for axis in axes)
                steps = fold(centred, axes, keepdims) * (own.scale**terms / out.scale)
            least, most = (end - int(out.zero_point) for end in (out.qmin, out.qmax))
            return steps.round().clamp(least, most).long() + out.zero_point

        return faulty

    return wrap


def root_of_squares(x: Tensor, axes: Sequence[int], keepdims: bool) -> Tensor:  # noqa: FBT001 - as in torch
    """Return the root of the sum of squares along *axes*."""
    return (x * x).sum(dim=tuple(axes), keepdim=keepdims).sqrt()


def product(x: Tensor, axes: Sequence[int], keepdims: bool) -> Tensor:  # noqa: FBT001 - as in torch
    """Return the product along *axes*, in the type of x."""
    # the last axis first, so that dropped axes do not move those that are left
    for axis in sorted(axes, reverse=True):
        x = x.prod(dim=axis, keepdim=keepdims, dtype=x.dtype)
    return x


def inverse(perm: Sequence[int]) -> tuple[int, ...]:
    """Return the permutation that undoes *perm*."""
    return tuple(sorted(range(len(perm)), key=lambda place: perm[place]))


def mirrored(padding: Sequence[int]) -> tuple[int, ...]:
    """Swap the padding before and after."""
    half = len(padding) // 2
    return (*padding[half:], *padding[:half])


def swapped(pair: Sequence[int]) -> tuple[int, ...]:
    """Swap the entries of the axes."""
    return tuple(reversed(pair))


def no_halo(original: Function) -> Function:
    """Cut input windows one element short: the missing element becomes padding."""
    del original

    def faulty(spec: Spec, shapes: Any, attrs: Any, plan: TilePlan) -> list[Tile]:
        return [_short(tile, shapes["x"]) for tile in tiles(spec, shapes, attrs, plan)]

    return faulty


def _short(tile: Tile, shape: tuple[int, ...]) -> Tile:
    padding: Any = tile.attrs["padding"]
    after = len(padding) // 2
    # the first spatial axis
    first = len(shape) - after
    low, high = tile.inputs["x"][first]
    if not (high - low > 1 and high < shape[first]):
        return tile
    box = (*tile.inputs["x"][:first], (low, high - 1), *tile.inputs["x"][first + 1 :])
    # the window keeps its number of outputs: the missing element is padded after the data
    longer = (*padding[:after], padding[after] + 1, *padding[after + 1 :])
    return replace(tile, inputs={**tile.inputs, "x": box}, attrs={**tile.attrs, "padding": longer})


def under_power_of_two(change: Callable[[Parameters], Parameters]) -> Wrap:
    """Change the provided numbers where the scheme's scales are powers of two."""

    def wrap(original: Function) -> Function:
        def faulty(request: Request) -> Parameters:
            parameters: Parameters = original(request)
            return change(parameters) if request.scheme.activation.rule == "power_of_two" else parameters

        return faulty

    return wrap


def linear_rule(original: Function) -> Function:
    """Choose any scale although the scheme requires powers of two."""

    def faulty(request: Request) -> Parameters:
        scheme = request.scheme
        parts = {
            name: part.model_copy(update={"rule": "linear"})
            for name, part in (("activation", scheme.activation), ("weight", scheme.weight))
            if part is not None
        }
        result: Parameters = original(replace(request, scheme=scheme.model_copy(update=parts)))
        return result

    return faulty
