"""Options of `quantize_graph`: policies, bits, observers and bias handling."""

from __future__ import annotations

from dataclasses import dataclass

from quantizer.runtime.tensor_config import QuantizationProperty

P = QuantizationProperty
BIAS_BITS = 32


@dataclass(frozen=True)
class Setting:
    """How tensors are quantized; the defaults are those of INT8."""

    activations: QuantizationProperty = P.PER_TENSOR | P.LINEAR | P.ASYMMETRICAL
    weights: QuantizationProperty = P.PER_CHANNEL | P.LINEAR | P.SYMMETRICAL
    """Per channel where the operation has an axis of output channels; per tensor elsewhere."""
    num_of_bits: int = 8
    observer: str = "minmax"
    """For activations: minmax, percentile, kl, mse, isotone, constant, floating, or a strategy of `optimize`."""
    weight_observer: str = "minmax"
    bias: bool = False
    """Whether a constant bias is quantized too: 32 bits, at the product of the scales of operand and weight."""
    reduce_range: bool = False
    """Whether weights use only 7 of their 8 bits, -63 to 63. Kernels for x86 without VNNI add pairs of products in 16
    bits, which then do not saturate."""

    @property
    def largest_weight(self) -> int:
        """The largest code of a weight; the smallest is its negative."""
        return (1 << (self.num_of_bits - 1 - self.reduce_range)) - 1


INT8 = Setting()
"""The default: 8-bit codes, activations from -128 to 127 with a zero point, weights from -127 to 127 for each output
channel, ranges of the extremes, a bias that stays float."""
