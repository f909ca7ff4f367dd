"""Compass's Sign: the codes are -1, 0 and 1, regardless of the calibrated range."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from quantizer.core.dtypes import integer
from quantizer.core.errors import GraphError
from quantizer.ir.graph import AttrValue, Graph, Node
from quantizer.ir.graph import Tensor as GraphTensor
from quantizer.numerics.qparams import QParams
from quantizer.numerics.quantize import centred
from quantizer.plugins.layers_without_spec import LoneLayer, activations

SIGN = "Sign"


@dataclass(frozen=True)
class SignLayer(LoneLayer):
    """The sign of real values, or of codes without their zero point."""

    attrs: Mapping[str, AttrValue]
    x: QParams | None = None
    """Parameters of its input, after quantization."""

    def run(self, operands: Sequence[Tensor]) -> list[Tensor]:
        """Return -1, 0 and 1; NaN stays NaN, as in torch."""
        (x,) = operands
        return [torch.sign(x if self.x is None else centred(x, self.x))]

    def decided(
        self,
        samples: Sequence[Tensor],  # noqa: ARG002
        inputs: Sequence[QParams],
        ranges: Sequence[tuple[float, float]],  # noqa: ARG002
        attrs: Mapping[str, Any],  # noqa: ARG002
    ) -> LoneLayer:
        """Return the layer with the parameters of its input."""
        return replace(self, x=inputs[0])

    @property
    def outputs(self) -> list[QParams]:
        """Return scale 1 and zero point 0, signed, with the bits of the input."""
        assert self.x is not None
        bits = self.x.bits
        half, one = 1 << (bits - 1), torch.tensor(1.0, dtype=torch.float64)
        return [QParams(integer(bits, signed=True), one, torch.tensor(0), -half, half - 1, steps=torch.tensor(1.0))]

    def constants(self) -> dict[str, GraphTensor]:
        """Return {}: a sign has no constants."""
        return {}

    def params(self) -> dict[str, Any]:
        """Return the layer's parameters unchanged."""
        return dict(self.attrs)


def sign_layer(graph: Graph, node: Node) -> SignLayer | None:
    """Return the layer if it is a Sign, else None. GraphError if it has other inputs or another shape."""
    if node.op != SIGN:
        return None
    read = activations(node)
    if len(read) != 1 or len(node.inputs) != 1 or len(node.outputs) != 1:
        raise GraphError(
            f"layer {node.name!r}: Sign has {len(node.inputs)} inputs and constants and {len(node.outputs)} outputs. "
            "It must have 1 input and 1 output."
        )
    shape, said = graph.tensor(read[0]).shape, graph.tensor(node.outputs[0]).shape
    if shape != said:
        raise GraphError(f"layer {node.name!r}: Sign makes {shape}, the IR says {said}. Correct layer_top_shape.")
    return SignLayer(node.attrs)
