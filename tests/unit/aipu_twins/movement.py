"""Concat, Transpose and Pad."""

from vendor_base import *


@op_register(OpType.Concat, "1.1")
def concat(self, *args):
    out, axis = self.outputs[0], self.get_param("axis")
    if not self.quantized:
        out.betensor = torch.cat([t.betensor for t in self.inputs], axis)
        return
    count = len(self.inputs)
    m = self.get_param("scale_value", optional=True, default_value=[1] * count)
    n = self.get_param("shift_value", optional=True, default_value=[0] * count)
    out.betensor = torch.cat(
        [
            linear_requantize(t.betensor.double() + t.zerop, m[i], n[i], out.zerop, out.qmin, out.qmax)
            for i, t in enumerate(self.inputs)
        ],
        axis,
    )


@quant_register(OpType.Concat, "1.1")
def concat_quantize(self, *args):
    out, ins = self.outputs[0], self.inputs
    first = ins[0]
    if all(
        float(t.scale) == float(first.scale) and int(t.zerop) == int(first.zerop) and t.dtype == first.dtype
        for t in ins
    ):
        copy_params(out, first)
    else:
        decide(self, out, any(is_signed(t.dtype) for t in ins))
    scales = [float(t.scale) for t in (*ins, out)]
    zeros = [int(t.zerop) for t in (*ins, out)]
    if max(scales) / (min(scales) + 1.1920929e-07) <= 1.05 and len(set(zeros)) == 1:
        return
    pairs = [one(out.scale / t.scale, mult_bits(self)) for t in ins]
    self.params["scale_value"], self.params["shift_value"] = [p[0] for p in pairs], [p[1] for p in pairs]
    self.params["scale_type"], self.params["shift_type"] = [Dtype.UINT16] * len(ins), [Dtype.INT8] * len(ins)


@op_register(OpType.Transpose, "1.1")
def transpose(self, *args):
    self.outputs[0].betensor = self.inputs[0].betensor.permute(self.get_param("perm"))


@quant_register(OpType.Transpose, "1.1")
def transpose_quantize(self, *args):
    copy_params(self.outputs[0], self.inputs[0])


@op_register(OpType.Pad, "1.1")
def pad(self, *args):
    assert self.get_param("mode") == "CONSTANT"
    sides = [n for pair in reversed(self.get_param("pads")) for n in pair]
    self.outputs[0].betensor = torch.nn.functional.pad(
        self.inputs[0].betensor, sides, value=float(self.get_param("constant_value"))
    )


@quant_register(OpType.Pad, "1.1")
def pad_quantize(self, *args):
    inp = self.inputs[0]
    copy_params(self.outputs[0], inp)
    self.params["constant_value"] = float(
        linear_quantize_clip(
            torch.tensor(float(self.params["constant_value"])), inp.scale, inp.zerop, inp.qmin, inp.qmax
        )
    )


@op_register(OpType.Split, "1.1")
def split(self, *args):
    start, axis = 0, self.get_param("axis")
    for out, size in zip(self.outputs, self.get_param("splits")):
        out.betensor = self.inputs[0].betensor.narrow(axis, start, size)
        start += size


@quant_register(OpType.Split, "1.1")
def split_quantize(self, *args):
    for out in self.outputs:
        copy_params(out, self.inputs[0])
