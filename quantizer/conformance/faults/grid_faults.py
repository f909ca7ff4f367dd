"""Faults in operands that are not integers under a single scale: blocks with their own scales, and narrow floats."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from quantizer.conformance.faults.changes import Wrap, kernel, output_codes, provided
from quantizer.conformance.faults.fault import Fault
from quantizer.core.formats import FLOAT_LAYOUTS
from quantizer.numerics.float_codes import nearest
from quantizer.numerics.qparams import Constant, Parameters, QParams
from quantizer.numerics.quantize import dequantize
from quantizer.ops.registry import Function

IN_BLOCKS = ("fully_connected", "matmul")
IN_FLOATS = ("relu", "add", "matmul")
"""Operators for which a shipped scheme has weights in blocks, or narrow floats."""
Codes = Callable[[Tensor, QParams], Tensor]


def _block_numbers(change: Callable[[Tensor], Tensor]) -> Callable[[Parameters], Parameters]:
    """Change the multipliers of blocks, which have the shape [channels, blocks + 1]: the last is that of the constant.

    Nothing changes without blocks.
    """

    def changed(p: Parameters) -> Parameters:
        ratio = p.rescale
        if ratio is None or ratio.mantissa.dim() < 2:
            return p
        return replace(p, rescale=replace(ratio, mantissa=change(ratio.mantissa)))

    return changed


def _of_blocks(change: Callable[[Tensor], Tensor]) -> Callable[[Tensor], Tensor]:
    return lambda numbers: torch.cat([change(numbers[:, :-1]), numbers[:, -1:]], 1)


def _last_as_before(numbers: Tensor) -> Tensor:
    return torch.cat([numbers[:, :-1], numbers[:, -2:-1]], 1) if numbers.shape[1] > 1 else numbers


def _moved(by: int) -> Callable[[Parameters], Parameters]:
    """Return a change that lets blocks end *by* elements earlier."""

    def change(params: QParams) -> QParams:
        blocks = params.blocks
        return params if blocks is None else replace(params, blocks=replace(blocks, start=blocks.start + by))

    return lambda p: replace(p, constants={n: Constant(c.codes, change(c.params)) for n, c in p.constants.items()})


def _left_out(original: Function) -> Function:
    """If there are several blocks, leave out the last one from the sum."""

    def faulty(*operands: Tensor, parameters: Parameters, **named: Any) -> Tensor:
        sums: Tensor = original(*operands, parameters=parameters, **named)
        ratio = parameters.rescale
        if ratio is None or ratio.mantissa.dim() < 2 or ratio.mantissa.shape[1] < 3:
            return sums
        sums = sums.clone()
        # [..., blocks + 1]: the last entry is the bias, the one before it is the last block
        sums[..., -2] = 0
        return sums

    return faulty


def _float_operands(change: Codes) -> Wrap:
    """Let the forward see the codes of narrow floats changed."""

    def wrap(original: Function) -> Function:
        def faulty(*operands: Tensor, parameters: Parameters, **named: Any) -> Tensor:
            floats = {name: params for name, params in parameters.inputs.items() if params.dtype.kind == "float"}
            seen = {name: change(value, floats[name]) if name in floats else value for name, value in named.items()}
            found: Tensor = original(*operands, parameters=parameters, **seen)
            return found

        return faulty

    return wrap


def _float_results(change: Codes) -> Wrap:
    """Change result codes of a narrow float after a right forward."""

    def changed(codes: Tensor, p: Parameters) -> Tensor:
        output = p.outputs["y"]
        return change(codes, output) if output.dtype.kind == "float" else codes

    return output_codes(changed)


def _flushed(codes: Tensor, params: QParams) -> Tensor:
    """Set every value below the smallest normal one to 0."""
    # magnitudes are counted from 0, and 1 << mantissa_bits is the smallest normal number
    return torch.where(codes.abs() < 1 << FLOAT_LAYOUTS[params.dtype.name].mantissa_bits, 0, codes)


def _one_exponent_less(codes: Tensor, params: QParams) -> Tensor:
    """Reserve the last exponent for infinities, as formats of IEEE 754 do."""
    each = 1 << FLOAT_LAYOUTS[params.dtype.name].mantissa_bits
    # the last code below the highest exponent
    top = params.qmax // each * each - 1
    return codes.clamp(-top, top)


def _complement(codes: Tensor, params: QParams) -> Tensor:
    """Read the magnitude of a negative number as two's complement."""
    # -1 becomes the largest magnitude, and so on down
    return torch.where(codes < 0, -params.qmax - 1 - codes, codes).clamp(-params.qmax, params.qmax)


def _as_integers(codes: Tensor, params: QParams) -> Tensor:
    """Read codes as whole numbers of one step, as on an integer grid."""
    return nearest(codes.double() * 3.5, params.dtype.name)


def _twice(original: Function) -> Function:
    """Round a sum to the grid of 1.5 times the output's step first, then to the grid of the output."""

    def faulty(*operands: Tensor, parameters: Parameters, **named: Any) -> Tensor:
        output = parameters.outputs["y"]
        if output.dtype.kind != "float" or parameters.rescale is None:
            right: Tensor = original(*operands, parameters=parameters, **named)
            return right
        # rounded to a grid of 1.5 steps first, whose values lie between those of the output's grid
        coarse, ratio = replace(output, scale=output.scale * 1.5), parameters.rescale
        first = replace(
            parameters, outputs={**parameters.outputs, "y": coarse}, rescale=replace(ratio, divisor=ratio.divisor * 1.5)
        )
        codes: Tensor = original(*operands, parameters=first, **named)
        units = _values(codes, output) * 1.5
        return nearest(units, output.dtype.name)

    return faulty


def _values(codes: Tensor, params: QParams) -> Tensor:
    return dequantize(codes, replace(params, scale=torch.ones_like(params.scale)))


GRIDS: tuple[Fault, ...] = (
    Fault(
        "block_scales_rolled",
        "kernel multiplier",
        IN_BLOCKS,
        "quantized",
        kernel(_block_numbers(_of_blocks(lambda m: m.roll(1, 1)))),
    ),
    Fault(
        "block_scale_shared",
        "kernel multiplier",
        IN_BLOCKS,
        "quantized",
        kernel(_block_numbers(_of_blocks(lambda m: m.amax(1, keepdim=True).expand_as(m)))),
    ),
    Fault(
        "block_last_stale",
        "kernel multiplier",
        IN_BLOCKS,
        "quantized",
        kernel(_block_numbers(_of_blocks(_last_as_before))),
    ),
    Fault(
        "block_scale_next",
        "provided multiplier",
        IN_BLOCKS,
        "quantize",
        provided(_block_numbers(lambda m: m * (1 + 2.0**-23))),
    ),
    Fault("block_ends_early", "sum", IN_BLOCKS, "accumulate", kernel(_moved(1))),
    Fault("block_left_out", "sum", IN_BLOCKS, "accumulate", _left_out),
    Fault(
        "constant_of_first_block",
        "kernel multiplier",
        ("fully_connected",),
        "quantized",
        kernel(_block_numbers(lambda m: torch.cat([m[:, :-1], m[:, :1]], 1))),
    ),
    Fault("float_subnormals_flushed", "output", IN_FLOATS, "quantized", _float_results(_flushed)),
    Fault("float_subnormals_unread", "operands", IN_FLOATS, "quantized", _float_operands(_flushed)),
    Fault("float_last_exponent_lost", "output", IN_FLOATS, "quantized", _float_results(_one_exponent_less)),
    Fault("float_sign_as_complement", "operands", IN_FLOATS[1:], "quantized", _float_operands(_complement)),
    Fault("float_codes_as_integers", "operands", IN_FLOATS, "quantized", _float_operands(_as_integers)),
    Fault("float_rounded_twice", "requantize", IN_FLOATS, "quantized", _twice),
)
