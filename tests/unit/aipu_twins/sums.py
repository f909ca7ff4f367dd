"""MatMul and Reduce."""

from vendor_base import *


@op_register(OpType.MatMul, "1.1")
def mm(self, *args):
    a, b, out = *self.inputs, self.outputs[0]
    assert not self.get_param("trans_a") and not self.get_param("trans_b")
    if not self.quantized:
        out.betensor = a.betensor @ b.betensor
        return
    z = (a.betensor.double() + a.zerop) @ (b.betensor.double() + b.zerop)
    out.betensor = linear_requantize(
        z, self.get_param("scale_value"), self.get_param("shift_value"), out.zerop, out.qmin, out.qmax
    )


@quant_register(OpType.MatMul, "1.1")
def mm_quantize(self, *args):
    a, b, out = *self.inputs, self.outputs[0]
    decide(self, out, is_signed(a.dtype) or is_signed(b.dtype))
    put(self, *approx(out.scale / (a.scale * b.scale), mult_bits(self)))


def keep(self, x, y):
    return y.reshape(self.outputs[0].betensor.shape) if y.shape != self.outputs[0].betensor.shape else y


@op_register(OpType.Reduce, "1.1")
def reduce(self, *args):
    inp, out = self.inputs[0], self.outputs[0]
    x, axes = inp.betensor, self.get_param("axis")
    keepdim = x.dim() == out.betensor.dim()
    if not self.quantized:
        out.betensor = (x.mean if self.get_param("method") == "MEAN" else x.sum)(axes, keepdim=keepdim)
        return
    acc = (x.double() + inp.zerop).sum(axes, keepdim=keepdim)
    out.betensor = linear_requantize(
        acc, self.get_param("scale_value"), self.get_param("shift_value"), out.zerop, out.qmin, out.qmax
    )


@quant_register(OpType.Reduce, "1.1")
def reduce_quantize(self, *args):
    inp, out = self.inputs[0], self.outputs[0]
    decide(self, out, is_signed(inp.dtype))
    ratio = out.scale / inp.scale
    if self.get_param("method") == "MEAN":
        ratio = (
            torch.tensor(1.0 / math.prod(inp.ir_shape[a] for a in self.get_param("axis")), dtype=torch.float32) * ratio
        )
    put(self, *approx(ratio, out.qbits))
