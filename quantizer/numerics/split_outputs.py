"""Operators with several outputs (split): joins their outputs, which are judged as one tensor, and splits it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from quantizer.core.shapes import Shape, cut_of, variables
from quantizer.core.spec import Spec


def concatenate_outputs(
    spec: Spec, made: Tensor | Sequence[Tensor], shapes: Mapping[str, Shape], attrs: Mapping[str, Any]
) -> Tensor:
    """Return the outputs concatenated along the axis at which the operator splits; a single tensor unchanged.

    shapes: of the operands. If every piece has the shape that the spec gives, the result determines them: each
    element's piece follows from its place.
    """
    if isinstance(made, Tensor):
        return made
    if len(made) == 1:
        return made[0]
    axis, _ = cut_of(spec, variables(spec, shapes, attrs), made[0].dim())
    return torch.cat(tuple(made), dim=axis)


def split_output(
    spec: Spec, whole: Tensor, shapes: Mapping[str, Shape], attrs: Mapping[str, Any]
) -> tuple[Tensor, ...]:
    """Return *whole* split into the outputs that the spec says; the inverse of `concatenate_outputs`."""
    axis, sizes = cut_of(spec, variables(spec, shapes, attrs), whole.dim())
    return torch.split(whole, list(sizes), dim=axis)
