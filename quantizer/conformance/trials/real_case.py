"""A case in real numbers: its operands and the operator's reference on them. No engine and no codes."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from quantizer.conformance.generation.datasets import materialise
from quantizer.conformance.target import Target
from quantizer.conformance.trials.provided import as_torch
from quantizer.core.case import Case
from quantizer.core.errors import SpecError
from quantizer.core.shapes import infer_shapes, variables
from quantizer.numerics.activations import activate
from quantizer.runtime.engines.protocol import Call
from quantizer.tiling.stacks import cut_along

Array = NDArray[Any]


class RealCase:
    """A case of a target with its data; every part is computed on demand and once."""

    def __init__(self, target: Target, case: Case) -> None:
        self.target = target
        self.spec = target.spec
        self.case = case.but(shapes={name: case.shapes[name] for name in target.spec.inputs if name in case.shapes})
        """The case, with its operands in the order of the spec; a stored case has them in the order of their names."""
        self.call = Call(target.spec, case.attrs, case.order, case.activation, target.platform.places)

    @cached_property
    def bound(self) -> dict[str, Any]:
        """Attributes and dimensions by name."""
        return variables(self.spec, self.case.shapes, self.case.attrs)

    @cached_property
    def output_shape(self) -> tuple[int, ...]:
        """Shape of the output in the operator's order."""
        return infer_shapes(self.spec, self.case.shapes, self.case.attrs)["y"]

    @cached_property
    def tensors(self) -> dict[str, Tensor]:
        """Float32 operands."""
        return materialise(self.target, self.case)

    @cached_property
    def doubles(self) -> dict[str, Tensor]:
        """The same operands in float64."""
        return {name: values.double() for name, values in self.tensors.items()}

    @property
    def axis(self) -> int:
        """The axis along which the operator reduces, from its error model."""
        expression = self.spec.error_model.axis
        if expression is None:
            raise SpecError(f"{self.spec.op}: error_model.axis is missing. Name the axis that is reduced.")
        return int(expression(self.bound))

    @cached_property
    def terms(self) -> int:
        """How many elements contribute to one output element, according to the spec; 1 if it does not say."""
        expression = self.spec.error_model.terms
        return 1 if expression is None else int(expression(self.bound))

    @cached_property
    def data_sets(self) -> int:
        """How many data sets the case holds: the parts of a stack, else one."""
        return len(self.case.data.sets)

    def most_read(self, name: str) -> int:
        """Return the number of operand *name*'s elements per data set; no output element reads more of them."""
        values, stack = self.tensors[name], self.case.data.stack
        places = {} if stack is None else cut_along(self.spec, self.case.shapes, self.case.attrs, stack.axis)
        if name not in places:
            return values.numel()
        size = values.shape[places[name]]
        # parts have the same size, rounded up; the last one may be shorter
        return values.numel() // size * -(-size // self.data_sets) if size else 0

    def reference(self, operands: Mapping[str, Tensor]) -> Array:
        """Return the built-in's reference on *operands*, before any fused activation."""
        result: Array = self.target.reference(operands, self.case).numpy()
        return result

    def magnitude(self, operands: Mapping[str, Tensor]) -> Array:
        """Return the sum of |terms| of a linear or bilinear operator: the reference on absolute values.

        For a sum of operands, each operand's part is counted separately, so that `a - b` counts |a| + |b|.
        """
        # the absolute value of an index would be another index
        pointing = {name for name, item in self.spec.inputs.items() if item.kind == "index"}
        absolute = {name: values if name in pointing else values.abs() for name, values in operands.items()}
        if self.spec.error_model.kind not in ("linear", "mean"):
            return self.reference(absolute)
        zeros = {name: values * 0 for name, values in absolute.items()}
        parts = [np.abs(self.reference({**zeros, name: values})) for name, values in absolute.items()]
        return np.asarray(np.sum(parts, axis=0))

    def real(self, operands: Mapping[str, Tensor]) -> Array:
        """Return the built-in's reference on *operands*, then the fused activation."""
        result: Array = self.target.real(operands, self.case).numpy()
        return result

    @cached_property
    def centre(self) -> Array:
        """f(x, w, b) in float64, before any fused activation."""
        return self.reference(self.doubles)

    @cached_property
    def y(self) -> Array:
        """f(x, w, b) in float64, the fused activation included."""
        result: Array = activate(as_torch(self.centre), self.case.activation).numpy()
        return result
