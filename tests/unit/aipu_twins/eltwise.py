"""Eltwise of every method, with_activation NONE, RELU or RELU6."""

from vendor_base import *

FUNCS = {"ADD": torch.add, "SUB": torch.sub, "MAX": torch.maximum, "MIN": torch.minimum, "MUL": torch.mul}


@op_register(OpType.Eltwise, "1.1")
def eltwise(self, *args):
    a, b, out = *self.inputs, self.outputs[0]
    method = self.get_param("method")
    if not self.quantized:
        out.betensor = act_float(self, FUNCS[method](a.betensor, b.betensor))
        return
    p, q = a.betensor.double() + a.zerop, b.betensor.double() + b.zerop
    if method == "MUL":
        m = self.get_param("scale_value")
    else:
        m, ka, kb = self.get_param("scale_value")
        p, q = p * ka, q * kb
    out.betensor = linear_requantize(
        act_int(self, FUNCS[method](p, q)), m, self.get_param("shift_value"), out.zerop, out.qmin, out.qmax
    )


def factors(a, b, out, bits):
    m0, n0 = approx(a.scale, 16)
    m1, n1 = approx(b.scale, 16)
    c = torch.maximum(n0, n1)
    k0, k1 = m1 * torch.exp2(c - n1), m0 * torch.exp2(c - n0)
    r = out.scale / (b.scale * a.scale) / torch.exp2(c)
    shrink = torch.maximum(k0, k1) / 32767
    if float(shrink) > 1:
        k0, k1, r = k0 / shrink, k1 / shrink, r * shrink
    k0, k1 = k0.round().clamp(0, 32767), k1.round().clamp(0, 32767)
    m, n = approx(r, bits)
    if int(n) < 0:
        m, n = (m * torch.exp2(-n)).clamp(1, 32767), n * 0
    return m, n, k0, k1


@quant_register(OpType.Eltwise, "1.1")
def eltwise_quantize(self, *args):
    a, b, out = *self.inputs, self.outputs[0]
    method, bits = self.get_param("method"), mult_bits(self)
    signed = act_of(self) == "NONE" and (is_signed(a.dtype) or is_signed(b.dtype) or method == "SUB")
    decide(self, out, signed)
    if method == "MUL":
        put(self, *approx(out.scale / (a.scale * b.scale), bits))
        return
    ratio = torch.maximum(a.scale, b.scale) / (torch.minimum(a.scale, b.scale) + 1.1920929e-07)
    if float(ratio) <= 1.0 and int(a.zerop) == int(b.zerop):
        m, n = approx(out.scale / a.scale, bits) if method == "ADD" else (torch.ones(1), torch.zeros(1))
        k0 = k1 = torch.ones(1)
    else:
        m, n, k0, k1 = factors(a, b, out, bits)
    self.params["scale_value"] = [int(m), int(k0), int(k1)]
    self.params["shift_value"] = int(n)
    self.params["scale_type"], self.params["shift_type"] = [Dtype.UINT16] * 3, Dtype.INT8
