"""PPQ's hooks: the caller's code that runs before and after an operation."""

from __future__ import annotations

from typing import Any

from torch import Tensor

from quantizer.ir.graph import Node

Values = list[Tensor | None]


class RuntimeHook:
    """Runs before and after one operation. Its return values replace the operands or results."""

    def __init__(self, operation: Node) -> None:
        self._hook_to = operation

    def pre_forward_hook(self, inputs: Values, **_: Any) -> Values:
        """Receive the operands, quantized if the operation is quantized. Return the operands to use."""
        return inputs

    def post_forward_hook(self, outputs: Values, **_: Any) -> Values:
        """Receive the results, quantized if the operation is quantized. Return the results to keep."""
        return outputs


class QuantOPRuntimeHook(RuntimeHook):
    """Runs around one quantized operation, and sees its operands and results before and after their quantization.

    Its keyword arguments are `quant_inputs` or `quant_outputs`, and `quant_configs`; `inputs` and `outputs` are raw.
    """

    def __init__(self, operation: Node) -> None:
        if not is_quantable(operation):
            raise TypeError(f"node {operation.name!r} is not quantized: hook it with RuntimeHook.")
        super().__init__(operation)

    def pre_forward_hook(self, inputs: Values, **named: Any) -> Values:
        """Receive raw and quantized operands and their configurations. Return the operands to use."""
        return list(named.get("quant_inputs", inputs))

    def post_forward_hook(self, outputs: Values, **named: Any) -> Values:
        """Receive raw and quantized results and their configurations. Return the results to keep."""
        return list(named.get("quant_outputs", outputs))


def is_quantable(operation: Node) -> bool:
    """Return whether the node is quantized: it has quantization configurations for its operands and results."""
    # by attribute, as PPQ does: users bring configuration classes of their own
    return hasattr(operation.parameters, "input_quantization_config")
