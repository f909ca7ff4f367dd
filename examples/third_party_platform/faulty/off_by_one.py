"""What a wrong kernel looks like to the gate: the chip's codes, the first of them one step off."""

from quantizer.numerics import Staged
from quantizer.ops import REGISTRY, operator


def wrong(op):
    """Register a kernel of *op* that is right but for one code."""

    @operator(op, platform="tiny_chip", version="2.0")
    def quantized_tiny_chip(*operands, parameters, **named):
        found = REGISTRY.built_in(op, "quantized", "tiny_chip").function(*operands, parameters=parameters, **named)
        codes = (found.codes if isinstance(found, Staged) else found).clone()
        first, largest = codes.view(-1)[:1], parameters.outputs["y"].qmax
        first += 1 if int(first) < int(largest) else -1
        return codes


for name in ("conv2d", "add", "mul", "relu", "softmax", "avg_pool2d", "sigmoid"):
    wrong(name)
