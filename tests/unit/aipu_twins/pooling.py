"""Pooling and GlobalPool."""

import torch.nn.functional as F
from vendor_base import *


def geometry(self, x):
    k = (self.get_param("kernel_y"), self.get_param("kernel_x"))
    s = (self.get_param("stride_y"), self.get_param("stride_x"))
    p = [self.get_param("pad_" + e) for e in ("top", "left", "bottom", "right")]
    ceil, o = self.get_param("ceil_mode"), []
    for i in (0, 1):
        v = x.shape[1 + i] + p[i] + p[i + 2] - k[i]
        n = (v + (s[i] - 1 if ceil else 0)) // s[i] + 1
        if ceil and (n - 1) * s[i] >= x.shape[1 + i] + p[i]:
            n -= 1
        o.append(n)
        p[i + 2] = max(p[i + 2], (n - 1) * s[i] + k[i] - x.shape[1 + i] - p[i])
    return k, s, (p[1], p[3], p[0], p[2]), o


@op_register(OpType.Pooling, "1.1")
def pooling(self, *args):
    inp, out = self.inputs[0], self.outputs[0]
    x = inp.betensor
    k, s, sides, o = geometry(self, x)
    if self.get_param("method") == "MAX":
        y = F.max_pool2d(F.pad(nhwc2nchw(x), sides, value=-float("inf")), k, s)
        out.betensor = nchw2nhwc(y)[:, : o[0], : o[1]]
        return
    x = nhwc2nchw(x)
    c = x.double() + inp.zerop if self.quantized else x
    sums = F.avg_pool2d(F.pad(c, sides), k, s, divisor_override=1)[:, :, : o[0], : o[1]]
    if self.get_param("count_include_pad"):
        area = torch.full_like(sums[:1, :1], k[0] * k[1])
    else:
        area = F.avg_pool2d(F.pad(torch.ones_like(x[:1, :1]), sides), k, s, divisor_override=1)[:, :, : o[0], : o[1]]
    y = sums / area
    if self.quantized:
        m, n = approx(1.0 / area.float(), 8)
        y = linear_requantize(sums, m.reshape(area.shape), n.reshape(area.shape), out.zerop, out.qmin, out.qmax)
    out.betensor = nchw2nhwc(y)


@quant_register(OpType.Pooling, "1.1")
def pooling_quantize(self, *args):
    copy_params(self.outputs[0], self.inputs[0])


@op_register(OpType.GlobalPool, "1.1")
def globalpool(self, *args):
    inp, out = self.inputs[0], self.outputs[0]
    x = inp.betensor
    if not self.quantized:
        out.betensor = x.mean((1, 2), keepdim=True)
        return
    sums = (x.double() + inp.zerop).sum((1, 2), keepdim=True)
    m, n = approx(torch.tensor(1.0) / (x.shape[1] * x.shape[2]), 8)
    out.betensor = linear_requantize(sums, int(m), int(n), out.zerop, out.qmin, out.qmax)


@quant_register(OpType.GlobalPool, "1.1")
def globalpool_quantize(self, *args):
    copy_params(self.outputs[0], self.inputs[0])
