"""GPTQ: weights become codes column by column. Later columns compensate the error of earlier ones."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor


def gptq(
    weights: Tensor,
    moments: Tensor,
    nearest: Callable[[Tensor], Tensor],
    *,
    act_order: bool,
    damping: float,
    block: int,
) -> Tensor:
    """Return values on the grid, [rows, columns], in the type of the moments.

    weights: [rows, columns]. moments: [columns, columns], a multiple of the sum of x x^T. nearest: values [rows] -> the
    nearest values on each row's grid. Source: Frantar et al. 2022, algorithm 1: the error of column q, divided by the
    diagonal of the inverse's Cholesky factor, is subtracted from the columns after it along that factor's row. A column
    that is never used becomes 0.
    """
    values, hessian = weights.to(moments.dtype).clone(), moments.clone()
    unused = hessian.diagonal() == 0
    # no input reads these columns: any value is as good, and 1 keeps the matrix invertible
    hessian.diagonal()[unused] = 1.0
    values[:, unused] = 0.0
    order = hessian.diagonal().argsort(descending=True) if act_order else torch.arange(len(hessian))
    hessian, values = hessian[order][:, order], values[:, order]
    # damping keeps the factorization possible where columns are nearly dependent
    hessian.diagonal().add_(damping * hessian.diagonal().mean())
    # row q of this factor says how an error in column q is best spread over the columns after it
    factor = torch.linalg.cholesky(torch.cholesky_inverse(torch.linalg.cholesky(hessian)), upper=True)
    found = torch.empty_like(values)
    for start in range(0, len(hessian), block):
        stop = min(start + block, len(hessian))
        # inside a block errors are spread at once, beyond it by one matrix product for the block
        errors = torch.zeros_like(values[:, start:stop])
        for column in range(start, stop):
            found[:, column] = nearest(values[:, column])
            error = (values[:, column] - found[:, column]) / factor[column, column]
            values[:, column:stop] -= error[:, None] * factor[column, column:stop]
            errors[:, column - start] = error
        values[:, stop:] -= errors @ factor[start:stop, stop:]
    # back into the caller's order of columns
    return found[:, order.argsort()]
