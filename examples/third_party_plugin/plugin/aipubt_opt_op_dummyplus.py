"""DummyPlus, a new layer type: the sum of two tensors of one shape.

Integer forward: y = ((a + za) * ka + (b + zb) * kb) * m * 2**-n - zy, one rounding; scale_value holds [m, ka, kb].
"""

from AIPUBuilder.Optimizer.framework import *
from AIPUBuilder.Optimizer.logger import *
from AIPUBuilder.Optimizer.utils import *

register_optype("DummyPlus")

FACTOR_LIMIT = 4095
MULTIPLIER_BITS = 15


@op_register(OpType.DummyPlus, "1.0")
def dummyplus_forward(self, *args):
    a, b, out = self.inputs[0], self.inputs[1], self.outputs[0]
    if not self.quantized:
        out.betensor = a.betensor + b.betensor
        return
    # Compass's zero points have the other sign: real = (code + zerop) / scale
    m, ka, kb = self.get_param("scale_value")
    total = (a.betensor.double() + a.zerop) * ka + (b.betensor.double() + b.zerop) * kb
    out.betensor = linear_requantize(total, m, self.get_param("shift_value"), out.zerop, out.qmin, out.qmax)


@quant_register(OpType.DummyPlus, "1.0")
def dummyplus_quantize(self, *args):
    a, b, out = self.inputs[0], self.inputs[1], self.outputs[0]
    bits, mode = self.get_attrs("q_bits_activation"), self.get_attrs("q_mode_activation")
    out.scale, out.zerop, out.qmin, out.qmax, out.dtype = get_linear_quant_params_from_tensor(
        out, mode, bits, is_signed=True
    )
    out.qbits, out.qinvariant = bits, False

    ratios = [float(out.scale / a.scale), float(out.scale / b.scale)]
    # both factors share one multiplier, so the larger one takes all bits of a factor
    largest = max(ratios)
    factors = [round(ratio / largest * FACTOR_LIMIT) for ratio in ratios]
    m, m_type, n, n_type = get_scale_approximation_params(largest / FACTOR_LIMIT, MULTIPLIER_BITS)
    self.params["scale_value"] = [m, *factors]
    self.params["scale_type"] = [m_type, Dtype.UINT16, Dtype.UINT16]
    self.params["shift_value"] = n
    self.params["shift_type"] = n_type
    OPT_DEBUG(f"layer {self.name}: 100% integer, m={m}, n={n}, factors={factors}")
