"""Plants faults that change a single tensor in functions with several outputs, by changing their concatenation."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from torch import Tensor

from quantizer.core.errors import GraphError
from quantizer.core.shapes import Shape, tensor_shapes
from quantizer.core.spec import Spec
from quantizer.numerics.split_outputs import concatenate_outputs, split_output
from quantizer.ops.registry import Function


class OnJoinedOutputs:
    """Changes a function that returns several tensors as if it returned their concatenation.

    If a changed attribute leads to other shapes than requested, GraphError is raised, as the executor does.
    """

    def __init__(self, spec: Spec, original: Function, wrap: Any) -> None:
        self._spec, self._original = spec, original
        self._changed: Function = wrap(self._whole)
        self._attrs: Mapping[str, Any] = {}

    def __call__(self, *operands: Tensor, **named: Any) -> tuple[Tensor, ...]:
        """Run the changed function and cut its result into the requested tensors."""
        # the attributes as requested, before a fault changes them on the way to the function
        self._attrs = {name: named[name] for name in self._spec.attrs}
        return split_output(self._spec, self._changed(*operands, **named), self._shapes(operands, named), self._attrs)

    def _whole(self, *operands: Tensor, **named: Any) -> Tensor:
        made, shapes = self._original(*operands, **named), self._shapes(operands, named)
        got, wanted = tuple(tuple(piece.shape) for piece in made), tensor_shapes(self._spec, shapes, self._attrs)
        if got != wanted:
            raise GraphError(f"{self._spec.op}: outputs of shapes {got}: must be {wanted}.")
        return concatenate_outputs(self._spec, made, shapes, self._attrs)

    def _shapes(self, operands: tuple[Tensor, ...], named: Mapping[str, Any]) -> dict[str, Shape]:
        given = {**dict(zip(self._spec.inputs, operands, strict=False)), **named}
        return {name: tuple(given[name].shape) for name in self._spec.inputs if isinstance(given.get(name), Tensor)}
