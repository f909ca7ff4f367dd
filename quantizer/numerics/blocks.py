"""Weights with a scale for each block: parameters, exact sums block by block, one rounding of their total."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from quantizer.core.errors import GraphError
from quantizer.core.rounding_modes import RoundingMode
from quantizer.numerics.exact_sum import exact_sum
from quantizer.numerics.kernels import limit
from quantizer.numerics.qparams import Parameters, QParams, Rescale

Product = Callable[[Tensor, Tensor], Tensor]


def product_ratio(scale: Tensor, weights: QParams, output: QParams) -> Rescale:
    """Return the exact multipliers of sums of blocks: a row per channel; a column per block, the last for the constant.

    *scale*: the scale of the activation, 0-d. The constant is added under the largest scale of its channel's blocks.
    """
    columns = torch.cat([weights.scale, weights.coarsest().scale.reshape(-1, 1)], 1)
    mantissa = scale * columns
    return Rescale("exact", mantissa, torch.zeros_like(mantissa, dtype=torch.int64), divisor=float(output.scale))


def sums_of_blocks(
    product: Product, x: Tensor, weight: Tensor, params: QParams, constant: Tensor | None = None
) -> Tensor:
    """Return the exact sum of each block, followed by *constant* or 0: int64, along a new last axis.

    *x*, whose last axis is summed, and *weight* are centred codes. A cut tensor has zeros for blocks that lie outside
    it.
    """
    blocks = params.blocks
    if blocks is None:
        raise GraphError("the weights have no blocks: there is one sum, not one for each block.")
    spans = {block: (start, stop) for block, start, stop in blocks.spans(weight.shape[blocks.axis])}
    parts = {
        block: product(x[..., start:stop], weight.narrow(blocks.axis, start, stop - start)).to(torch.int64)
        for block, (start, stop) in spans.items()
    }
    # a tile may lack whole blocks, but all tiles have the same columns
    empty = torch.zeros_like(next(iter(parts.values())))
    columns = [parts.get(block, empty) for block in range(params.scale.shape[-1])]
    return torch.stack([*columns, empty if constant is None else empty + constant], -1)


def finish_blocks(acc: Tensor, parameters: Parameters, rescale: Rescale, output: QParams, mode: RoundingMode) -> Tensor:
    """Return the codes of a sum of blocks: each block's sum times its scale, added up, rounded once."""
    held = limit(acc, parameters.accumulator_bits, parameters.platform.accumulator.overflow)
    if rescale.axis is None or held.shape[-1] != rescale.mantissa.shape[-1]:
        wanted = rescale.mantissa.shape[-1]
        raise GraphError(
            f"sums of blocks: shape {list(acc.shape)} must end in {wanted}, one for each block and the constant."
        )
    rank = held.dim() - 1
    along = [-1 if place == rescale.axis % rank else 1 for place in range(rank)]
    terms = [(held[..., i].contiguous(), rescale.mantissa[:, i].reshape(along)) for i in range(held.shape[-1])]
    codes = torch.empty(held.shape[:-1], dtype=torch.int64)
    exact_sum(terms, rescale.divisor, output.zero_point, codes, output, mode, 0)
    return codes
