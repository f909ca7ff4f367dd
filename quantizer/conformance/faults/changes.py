"""Small changes to an operator's functions, at a named place of the pipeline."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from quantizer.core.rounding_modes import RoundingMode
from quantizer.numerics.qparams import Constant, Parameters, QParams, Staged, Table
from quantizer.numerics.request import Request
from quantizer.ops.registry import Function
from quantizer.tiling.windows import tiles

Wrap = Callable[[Function], Function]


def kernel(change: Callable[[Parameters], Parameters]) -> Wrap:
    """Make the integer forward use changed parameters, while the provided ones stay unchanged."""

    def wrap(original: Function) -> Function:
        def faulty(*operands: Tensor, parameters: Parameters, **named: Any) -> Tensor | Staged:
            result: Tensor | Staged = original(*operands, parameters=change(parameters), **named)
            return result

        return faulty

    return wrap


def provided(change: Callable[[Parameters], Parameters]) -> Wrap:
    """Make the quantize rule provide changed parameters."""

    def wrap(original: Function) -> Function:
        return lambda request: change(original(request))

    return wrap


def output_codes(change: Callable[[Tensor, Parameters], Tensor]) -> Wrap:
    """Change output codes after a right forward."""

    def wrap(original: Function) -> Function:
        def faulty(*operands: Tensor, parameters: Parameters, **named: Any) -> Tensor | Staged:
            result = original(*operands, parameters=parameters, **named)
            if isinstance(result, Staged):
                return replace(result, codes=change(result.codes, parameters))
            return change(result, parameters)

        return faulty

    return wrap


def rounding_mode(mode: RoundingMode) -> Wrap:
    """Plant a kernel that rounds in *mode* instead of the platform's mode."""
    return kernel(lambda p: replace(p, platform=p.platform.model_copy(update={"rounding": mode})))


def quantizer_change(**changes: str) -> Wrap:
    """Quantize real numbers in another way."""

    def changed(p: Parameters) -> Parameters:
        # the quantizer that a kernel runs may differ from the one that quantizes constants
        own = p.platform.runtime_quantizer.model_copy(update=changes)
        return replace(p, platform=p.platform.model_copy(update={"kernel_quantizer": own}))

    return kernel(changed)


def input_zero(p: Parameters) -> Parameters:
    """Move the zero point of the first input by one."""
    name = next(iter(p.inputs))
    moved = replace(p.inputs[name], zero_point=p.inputs[name].zero_point + 1)
    return replace(p, inputs={**p.inputs, name: moved})


def output_zero(p: Parameters) -> Parameters:
    """Move the zero point of the output by one."""
    return with_output(p, lambda q: replace(q, zero_point=q.zero_point + 1))


def with_output(p: Parameters, change: Callable[[QParams], QParams]) -> Parameters:
    """Return *p* with changed output parameters."""
    return replace(p, outputs={**p.outputs, "y": change(p.outputs["y"])})


def scaled_output(factor: float) -> Callable[[Parameters], Parameters]:
    """Return a change of parameters that multiplies the output scale by *factor*."""

    # `steps` counts codes per real unit, the inverse of a scale
    def change(q: QParams) -> QParams:
        return replace(q, scale=q.scale * factor, steps=None if q.steps is None else q.steps / factor)

    return lambda p: with_output(p, change)


def significant_bits(count: int) -> Callable[[Tensor], Tensor]:
    """Keep *count* significant bits of a multiplier."""

    def change(mantissa: Tensor) -> Tensor:
        # the fraction is in [0.5, 1), so `count` binary places of it are `count` significant bits
        fraction, exponent = torch.frexp(mantissa)
        return torch.ldexp(torch.round(fraction * 2.0**count) / 2.0**count, exponent)

    return change


def constant_codes(place: int, change: Callable[[Tensor], Tensor]) -> Callable[[Parameters], Parameters]:
    """Change the codes of the constant at *place*: 0 is the first (weights), 1 the second (bias) if there is one."""

    def changed(p: Parameters) -> Parameters:
        if place >= len(p.constants):
            return p
        name, constant = list(p.constants.items())[place]
        return replace(p, constants={**p.constants, name: Constant(change(constant.codes), constant.params)})

    return changed


def first_plus_one(codes: Tensor) -> Tensor:
    """Move the first code by one, towards zero."""
    changed = codes.clone()
    flat = changed.view(-1)
    # towards zero, so that a code at an end of its range stays legal
    flat[0] += torch.where(flat[0] > 0, -1, 1)
    return changed


def table_change(change: Callable[[Table], Table]) -> Callable[[Parameters], Parameters]:
    """Change every provided table."""
    return lambda p: replace(p, tables={name: change(table) for name, table in p.tables.items()})


def one_entry(table: Table) -> Table:
    """Raise the upper half of the entries by one."""
    entries = table.entries.clone()
    entries[entries.numel() // 2 :] += 1
    return replace(table, entries=entries)


def without_bias(original: Function) -> Function:
    """Leave out the bias, or the beta of a normalisation."""

    def faulty(*operands: Tensor, **named: Any) -> Any:
        # a reference may take its operands by position: the third is the bias
        kept = (*operands[:2], *(None for _ in operands[2:]))
        return original(*kept, **{name: None if name in ("bias", "beta") else v for name, v in named.items()})

    return faulty


def attribute_change(name: str, change: Callable[[Any], Any]) -> Wrap:
    """Plant a function that computes with attribute *name* after *change*."""

    def wrap(original: Function) -> Function:
        return lambda *operands, **named: original(*operands, **{**named, name: change(named[name])})

    return wrap


def weights_swapped_groups(original: Function) -> Function:
    """Read the groups of the input in reverse."""

    def faulty(x: Tensor, weight: Tensor, bias: Tensor | None = None, *, groups: int, **named: Any) -> Tensor:
        shuffled = x.unflatten(1, (groups, -1)).flip(1).flatten(1, 2) if groups > 1 else x
        result: Tensor = original(shuffled, weight, bias, groups=groups, **named)
        return result

    return faulty


def without_max(original: Function) -> Function:
    """Look exponentials up relative to the largest code of the format instead of the largest code of the row."""

    def faulty(x: Tensor, *, parameters: Parameters, axis: int) -> Tensor | Staged:
        top = parameters.inputs["x"].qmax
        # a further element with the largest code of the format becomes the maximum of every row
        padded = torch.cat([x, torch.full_like(x.narrow(axis, 0, 1), top)], dim=axis)
        result = original(padded, parameters=parameters, axis=axis)
        codes = result.codes if isinstance(result, Staged) else result
        return codes.narrow(axis, 0, x.shape[axis])

    return faulty


def other_tie(original: Function) -> Function:
    """Break ties the other way."""
    return lambda x, *, select_last, **named: original(x, select_last=not select_last, **named)


def column_major(original: Function) -> Function:
    """Move elements in column-major order."""
    del original
    return lambda x, *, parameters, shape: x.permute(*reversed(range(x.dim()))).reshape(shape)  # noqa: ARG005


def stale_result(original: Function) -> Function:
    """Return the result of the previous run on operands of the same shape, in every second run."""
    kept: dict[tuple[int, ...], Tensor | Staged] = {}

    def faulty(*operands: Tensor, **named: Any) -> Tensor | Staged:
        first = next(iter((*operands, *(v for v in named.values() if isinstance(v, Tensor)))))
        result = original(*operands, **named)
        # taken out when it is returned, so that the next run computes again
        return kept.pop(tuple(first.shape), None) or kept.setdefault(tuple(first.shape), result)

    return faulty


def batch_statistic(original: Function) -> Function:
    """Let one code of the output depend on the number of rows in a run."""

    def faulty(*operands: Tensor, parameters: Parameters, **named: Any) -> Tensor | Staged:
        result = original(*operands, parameters=parameters, **named)
        codes = result.codes if isinstance(result, Staged) else result
        if codes.dim() and codes.shape[0] > 1:
            codes = codes.clone()
            # the first row is right, whatever the number of rows
            codes[1:] = torch.where(codes[1:] > parameters.outputs["y"].qmin, codes[1:] - 1, codes[1:])
        return replace(result, codes=codes) if isinstance(result, Staged) else codes

    return faulty


def in_place(original: Function) -> Function:
    """Write into the first operand."""

    def faulty(*operands: Tensor, **named: Any) -> Tensor | Staged:
        result: Tensor | Staged = original(*operands, **named)
        values = (*operands, *named.values())
        next(v for v in values if isinstance(v, Tensor)).add_(1)
        return result

    return faulty


def constants_in_place(original: Function) -> Function:
    """Double the constants in place before the quantize rule sees them."""

    def faulty(request: Request) -> Parameters:
        for values in request.constants.values():
            values.mul_(2)
        result: Parameters = original(request)
        return result

    return faulty


def tables_in_place(original: Function) -> Function:
    """Run, then write into the provided tables."""

    def faulty(*operands: Tensor, parameters: Parameters, **named: Any) -> Tensor | Staged:
        result: Tensor | Staged = original(*operands, parameters=parameters, **named)
        for table in parameters.tables.values():
            table.entries.add_(1)
        return result

    return faulty


def next_shift(parameters: Parameters) -> Parameters:
    """Halve a provided multiplier."""
    numbers = {name: value + (name == "shift") for name, value in parameters.numbers.items()}
    return replace(parameters, numbers=numbers)


def last_tile_dropped(original: Function) -> Function:
    """Leave the last tile out."""
    del original
    # a single tile stays, since a result without any tile would be no result
    return lambda spec, shapes, attrs, plan: tiles(spec, shapes, attrs, plan)[:-1] or tiles(spec, shapes, attrs, plan)


def swapped_factors(p: Parameters) -> Parameters:
    """Swap the operands' factors."""
    if p.rescale is None:
        return p
    names, values = list(p.rescale.factors), list(p.rescale.factors.values())
    return replace(p, rescale=replace(p.rescale, factors=dict(zip(names, reversed(values), strict=True))))


def rolled_channels(p: Parameters) -> Parameters:
    """Give each channel the multiplier of its neighbour."""
    if p.rescale is None or p.rescale.mantissa.dim() == 0:
        return p
    return replace(p, rescale=replace(p.rescale, mantissa=p.rescale.mantissa.roll(1), shift=p.rescale.shift.roll(1)))


def clipped_codes(low: int, high: int) -> Callable[[Tensor, Parameters], Tensor]:
    """Clip codes early at either end."""
    return lambda codes, p: codes.clamp(p.outputs["y"].qmin + low, p.outputs["y"].qmax - high)


def wrapped_at_top(codes: Tensor, p: Parameters) -> Tensor:
    """Turn codes at the upper end into the lower end, as a missing clip wraps."""
    output = p.outputs["y"]
    return torch.where(codes == output.qmax, output.qmin, codes)


def half_precision(original: Function) -> Function:
    """Compute in float16."""
    return lambda *operands, **named: original(
        *(v.half() for v in operands), **{k: v.half() if isinstance(v, Tensor) else v for k, v in named.items()}
    ).float()
