"""The part of a spec that says how an operator is written as a layer of a file format."""

from __future__ import annotations

from quantizer.core.model import Model
from quantizer.core.spec_values import (
    Activation,
    Expr,
    Identifier,
    OneOrMoreKeys,
    StagedActivation,
)


class LayerFormat(Model):
    """How the operator is written as a layer of one file format."""

    type: str
    """Its layer type."""
    inputs: dict[Identifier, str] = {}
    """Constant operands: our name -> theirs."""
    attrs: dict[Identifier, OneOrMoreKeys] = {}
    """Attribute -> the system's key, or one key for each entry of a list."""
    trailing_axes: dict[Identifier, str] = {}
    """Attribute that names an axis of the first input -> the system's key, which lists that axis and all later ones."""
    sized: dict[Identifier, list[Identifier]] = {}
    """Attributes that no key stores -> the output axes whose sizes they equal."""
    derived: dict[str, Expr] = {}
    """Keys that follow from shapes and attributes."""
    fixed: dict[str, str] = {}
    """Keys whose values identify the operator: a layer with other values is another operator."""
    absent: dict[str, str] = {}
    """Values that the system assumes for keys that the layer leaves out."""
    layouts: dict[Identifier, list[str]] = {}
    """Constant operand -> its axes in the layer's order, if this is not channel last."""
    zeros: list[Identifier] = []
    """Optional constants that the system requires: if absent, zeros are written."""
    from_front: list[Identifier] = []
    """Axis attributes that are written as numbers from 0 on, because the system takes no negative axes."""
    pairs: list[Identifier] = []
    """Attributes that list all numbers before the axes, then all after them. The layer writes [before, after] pairs."""
    consumed: list[Identifier] = []
    """Attributes that a quantized layer leaves out, because its table includes them."""
    activation: str | None = None
    """Key that names the fused activation."""
    transposed: dict[Identifier, str] = {}
    """Input -> key that says whether the last two axes of the tensor are swapped."""
    unfused: str = "NONE"
    """The value of that key if no activation is fused."""
    fuses: list[Activation | StagedActivation] = []
    """Activations that only this layer fuses. RELU6 is the layer of relu, clamped at 6."""
