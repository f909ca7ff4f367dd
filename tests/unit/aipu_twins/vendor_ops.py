"""Layer types of a vendor: with_activation NONE or RELU where a spec fuses it."""

import torch.nn.functional as F
from vendor_base import *

for name in ("VGelu", "VSoftplus", "VRowMean", "VJoin", "VMix", "VTimes"):
    register_optype(name)
FUNCS = {"VGelu": F.gelu, "VSoftplus": F.softplus}


@op_register([OpType.VGelu, OpType.VSoftplus], "1.0")
def table_op(self, *args):
    inp, out = self.inputs[0], self.outputs[0]
    if not self.quantized:
        out.betensor = FUNCS[self.type.name](inp.betensor)
        return
    out.betensor = lookup_lut_powerof2(
        inp.betensor,
        self.get_constant("lut").betensor,
        inp.qbits,
        is_signed(inp.dtype),
        out.qbits,
        is_signed(out.dtype),
    )


@quant_register([OpType.VGelu, OpType.VSoftplus], "1.0")
def table_quantize(self, *args):
    inp, out = self.inputs[0], self.outputs[0]
    decide(self, out, float(out.min) < 0)
    size = 2 ** min(inp.qbits, self.get_attrs("lut_items_in_bits"))
    low, high = bits2range(inp.qbits, is_signed(inp.dtype))
    grid = torch.arange(low, high + 1, (high - low + 1) // size).double()
    y = linear_quantize_clip(
        FUNCS[self.type.name](linear_dequantize(grid, inp.scale.double(), inp.zerop)),
        out.scale.double(),
        out.zerop,
        out.qmin,
        out.qmax,
    )
    self.constants["lut"] = PyTensor(self.name + "/lut", y.numpy().astype(dtype2nptype(out.dtype)))
    self.constants["lut"].dtype = out.dtype


@op_register(OpType.VRowMean, "1.0")
def row_mean(self, *args):
    inp, out = self.inputs[0], self.outputs[0]
    if not self.quantized:
        out.betensor = inp.betensor.mean(-1)
        return
    acc = (inp.betensor.double() + inp.zerop).sum(-1)
    out.betensor = linear_requantize(
        acc, self.get_param("scale_value"), self.get_param("shift_value"), out.zerop, out.qmin, out.qmax
    )


@quant_register(OpType.VRowMean, "1.0")
def row_mean_quantize(self, *args):
    inp, out = self.inputs[0], self.outputs[0]
    decide(self, out, True)
    put(self, *approx(out.scale / inp.scale / inp.ir_shape[1], mult_bits(self)))


@op_register(OpType.VJoin, "1.0")
def join(self, *args):
    out = self.outputs[0]
    if not self.quantized:
        out.betensor = torch.cat([t.betensor for t in self.inputs], 1)
        return
    m, n = self.get_param("scale_value"), self.get_param("shift_value")
    out.betensor = torch.cat(
        [
            linear_requantize(t.betensor.double() + t.zerop, m[i], n[i], out.zerop, out.qmin, out.qmax)
            for i, t in enumerate(self.inputs)
        ],
        1,
    )


@quant_register(OpType.VJoin, "1.0")
def join_quantize(self, *args):
    out = self.outputs[0]
    decide(self, out, True)
    pairs = [one(out.scale / t.scale, mult_bits(self)) for t in self.inputs]
    self.params["scale_value"], self.params["shift_value"] = [p[0] for p in pairs], [p[1] for p in pairs]


@op_register(OpType.VMix, "1.0")
def mix(self, *args):
    a, b, out = *self.inputs, self.outputs[0]
    if not self.quantized:
        out.betensor = act_float(self, a.betensor - b.betensor)
        return
    m, ka, kb = self.get_param("scale_value")
    acc = (a.betensor.double() + a.zerop) * ka - (b.betensor.double() + b.zerop) * kb
    out.betensor = linear_requantize(
        act_int(self, acc), m, self.get_param("shift_value"), out.zerop, out.qmin, out.qmax
    )


@quant_register(OpType.VMix, "1.0")
def mix_quantize(self, *args):
    a, b, out = *self.inputs, self.outputs[0]
    decide(self, out, act_of(self) == "NONE")
    ratios = [float(out.scale / t.scale) for t in (a, b)]
    m, n = one(max(ratios) / 4095, 15)
    self.params["scale_value"] = [m, *(round(r / max(ratios) * 4095) for r in ratios)]
    self.params["shift_value"] = n


@op_register(OpType.VTimes, "1.0")
def times(self, *args):
    a, b, out = *self.inputs, self.outputs[0]
    if not self.quantized:
        out.betensor = a.betensor * b.betensor
        return
    acc = (a.betensor.double() + a.zerop) * (b.betensor.double() + b.zerop)
    out.betensor = linear_requantize(
        acc, self.get_param("scale_value"), self.get_param("shift_value"), out.zerop, out.qmin, out.qmax
    )


@quant_register(OpType.VTimes, "1.0")
def times_quantize(self, *args):
    a, b, out = *self.inputs, self.outputs[0]
    decide(self, out, True)
    put(self, *approx(out.scale / (a.scale * b.scale), mult_bits(self)))
