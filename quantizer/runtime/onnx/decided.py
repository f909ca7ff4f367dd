"""Caches the decisions of a kernel that depend only on shapes and types, per node."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from quantizer.ir.graph import Node
from quantizer.ops import REGISTRY
from quantizer.runtime.onnx.kernels import Context, Kernel, Outcome, special

Seen = list[tuple[torch.Size, torch.dtype] | None]


@dataclass(frozen=True)
class Form:
    """Map to the registry's operator that runs a node: which operand is which, and the attributes."""

    op: str
    places: tuple[tuple[str, int], ...]
    attrs: Mapping[str, Any]


class Decided:
    """A kernel for one node of a plan. A decision that reads no values is made only when shapes change.

    To find out, the decision is made on tensors without values. If it reads values, it raises an error there; if it
    computes a new operand, it returns another tensor than the operand. Both kinds are then made again in each call.
    """

    def __init__(self, kernel: Kernel) -> None:
        self._kernel = kernel
        self._seen: Seen | None = None
        self._form: Form | None = None

    def __call__(self, op: Node, values: Sequence[Tensor | None], ctx: Context, **_: Any) -> Outcome:
        """Run the operator on *values* as the kernel does."""
        seen: Seen = [None if value is None else (value.shape, value.dtype) for value in values]
        if seen != self._seen:
            made = self._kernel(op, values, ctx)
            self._form, self._seen = _form(self._kernel, op, values, ctx), seen
            return made
        form = self._form
        if form is None:
            return self._kernel(op, values, ctx)
        operands = {name: values[place] for name, place in form.places}
        outcome: Tensor = REGISTRY.get(form.op, "reference")(**operands, **form.attrs)
        return outcome


def _form(kernel: Kernel, op: Node, values: Sequence[Tensor | None], ctx: Context) -> Form | None:
    """Return the form that a kernel finds for any values; None if there is none, or if it depends on the values."""
    if kernel.mapped is None:
        return None
    # tensors of torch's device meta have shape and type, but no values
    empty = [None if value is None else torch.empty_like(value, device="meta") for value in values]
    places = {id(value): place for place, value in enumerate(empty) if value is not None}
    try:
        found = kernel.mapped(*empty, **op.attrs, **special(kernel.mapped, op, ctx))
    except Exception:  # noqa: BLE001 - torch has many errors for a tensor without values that is asked for one
        return None
    if found is None or any(id(operand) not in places for operand in found.operands.values()):
        return None
    return Form(found.op, tuple((name, places[id(operand)]) for name, operand in found.operands.items()), found.attrs)
