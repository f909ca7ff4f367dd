"""SignedSquare, a new layer type: each element times its own absolute value, looked up in a table of all codes."""

import torch
from AIPUBuilder.Optimizer.framework import *
from AIPUBuilder.Optimizer.logger import *
from AIPUBuilder.Optimizer.utils import *

register_optype("SignedSquare")


def signed_square(values):
    return values * values.abs()


@op_register(OpType.SignedSquare, "1.0")
def signed_square_forward(self, *args):
    inp, out = self.inputs[0], self.outputs[0]
    if not self.quantized:
        out.betensor = signed_square(inp.betensor)
        return
    table = self.get_constant("lut").betensor
    # the first entry belongs to the smallest code
    out.betensor = table[(inp.betensor - inp.qmin).long()]


@quant_register(OpType.SignedSquare, "1.0")
def signed_square_quantize(self, *args):
    inp, out = self.inputs[0], self.outputs[0]
    out.qbits, out.qinvariant = self.get_attrs("q_bits_activation"), False
    out.scale, out.zerop, out.qmin, out.qmax, out.dtype = get_linear_quant_params_from_tensor(
        out, self.get_attrs("q_mode_activation"), out.qbits, is_signed=is_signed(inp.dtype)
    )
    codes = torch.arange(inp.qmin, inp.qmax + 1).double()
    values = signed_square(linear_dequantize(codes, inp.scale, inp.zerop))
    entries = linear_quantize_clip(values, out.scale, out.zerop, out.qmin, out.qmax)
    self.constants["lut"] = PyTensor(self.name + "/lut", entries.numpy().astype(dtype2nptype(out.dtype)))
    self.constants["lut"].dtype = out.dtype
    OPT_DEBUG(f"layer {self.name}: table of {len(entries)} entries")
