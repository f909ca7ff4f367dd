"""What all layers of this vendor share."""

import math

import torch
from AIPUBuilder.Optimizer.framework import *
from AIPUBuilder.Optimizer.logger import *
from AIPUBuilder.Optimizer.utils import *


def approx(scale, bits, shift_ceil=31):
    """Own code: s ~ m * 2**-n, float32."""
    s = torch.as_tensor(scale, dtype=torch.float32).reshape(-1)
    top = torch.tensor(2.0 ** min(15, bits) - 1, dtype=torch.float32)
    n = torch.log2(top / s).floor().clamp_max(shift_ceil)
    m = (s * torch.exp2(n) + 0.5).floor()
    if float((m - torch.exp2(n)).abs().max()) < 1.1920929e-07:
        m, n = torch.ones_like(m), torch.zeros_like(n)
    return m, n


def one(scale, bits):
    m, n = approx(scale, bits)
    return int(m[0]), int(n[0])


def mult_bits(self):
    return self.get_attrs("multiplier_bits")


def decide(self, out, signed):
    out.qbits = self.get_attrs("q_bits_activation")
    out.scale, out.zerop, out.qmin, out.qmax, out.dtype = get_linear_quant_params_from_tensor(
        out, self.get_attrs("q_mode_activation"), out.qbits, is_signed=signed
    )
    out.qinvariant = False


def copy_params(out, inp):
    for key in ("scale", "zerop", "qbits", "qmin", "qmax", "dtype", "qinvariant"):
        setattr(out, key, getattr(inp, key))


def act_of(self):
    return str(self.get_param("with_activation", optional=True, default_value="NONE")).upper()


def act_signed(self):
    return act_of(self) == "NONE"


def act_float(self, y):
    act = act_of(self)
    if act == "RELU":
        return y.clamp(min=0)
    if act == "RELU6":
        return y.clamp(0, 6)
    assert act == "NONE", act
    return y


def act_int(self, acc):
    act = act_of(self)
    if act == "RELU":
        return acc.float().clamp(min=0).double()
    if act == "RELU6":
        return acc.clamp(min=0)
    assert act == "NONE", act
    return acc


def put(self, m, n):
    bits = mult_bits(self)
    kind = Dtype.UINT8 if bits <= 8 else Dtype.UINT16
    if m.numel() == 1:
        self.params["scale_value"], self.params["shift_value"] = int(m[0]), int(n[0])
        self.params["scale_type"], self.params["shift_type"] = kind, Dtype.INT8
        return
    self.constants["scale"] = PyTensor(self.name + "/scale", m.numpy().astype(dtype2nptype(Dtype.UINT16)))
    self.constants["scale"].dtype = Dtype.UINT16
    self.constants["shift"] = PyTensor(self.name + "/shift", n.numpy().astype(dtype2nptype(Dtype.INT8)))
    self.constants["shift"].dtype = Dtype.INT8


def numbers(self):
    return [
        self.constants[k].betensor if k in self.constants else self.get_param(k + "_value") for k in ("scale", "shift")
    ]


def unify(m, n, limit=32767):
    m, n = m.long(), n.long()
    top = max(0, int(n.max()))
    m = m << (top - n)
    while int(m.max()) > limit:
        m, top = m >> 1, top - 1
    return m.float(), torch.full_like(m, top).float()


OWN_SHIFTS = False


def linear_quantize(self, repeat=1, wbits=None):
    """weights, biases, scale, shift of Convolution, DepthwiseConv, ConvTranspose, FullyConnected, BatchNorm."""
    inp, out = self.inputs[0], self.outputs[0]
    w, b = self.constants["weights"], self.constants["biases"]
    rows, group = w.shape[0], int(self.get_param("group", optional=True, default_value=1))
    decide(self, out, act_signed(self))
    mode, w.qbits = self.get_attrs("q_mode_weight"), wbits or self.get_attrs("q_bits_weight")
    groups = rows * repeat if QuantMode.is_per_channel(mode) else group
    lo = w.betensor.reshape(rows, -1).amin(1).clamp(max=0).repeat(repeat)
    hi = w.betensor.reshape(rows, -1).amax(1).clamp(min=0).repeat(repeat)
    if QuantMode.is_per_channel(mode) or group > 1:
        mode = QuantMode.to_per_channel(mode)
        count = rows * repeat
        g = min(groups, count)
        while True:
            per = math.ceil(count / g)
            pad = g * per - count
            l = torch.nn.functional.pad(lo, (0, pad)).reshape(g, per).amin(1).repeat_interleave(per)[:count]
            h = torch.nn.functional.pad(hi, (0, pad)).reshape(g, per).amax(1).repeat_interleave(per)[:count]
            w.min_key_axis, w.max_key_axis = l, h
            scale, zerop, w.qmin, w.qmax, w.dtype = get_linear_quant_params_from_tensor(
                w, mode, w.qbits, is_signed=True
            )
            m, n = approx(out.scale / (inp.scale * scale), mult_bits(self))
            if OWN_SHIFTS:
                break
            m, n = unify(m, n)
            if int(m.min()) > 0 or g == 1:
                break
            g >>= 1
    else:
        scale, zerop, w.qmin, w.qmax, w.dtype = get_linear_quant_params_from_tensor(w, mode, w.qbits, is_signed=True)
        scale, zerop = scale.reshape(-1), zerop.reshape(-1)
        m, n = approx(out.scale / (inp.scale * scale), mult_bits(self))
    put(self, m, n)
    many = scale.numel() > 1
    w.scale, w.zerop = (scale[:rows], zerop[:rows]) if many else (scale, zerop)
    w.betensor = linear_quantize_clip(w.betensor, w.scale, w.zerop, w.qmin, w.qmax, key_axis=0 if many else None)
    b.scale, b.zerop, b.qbits = inp.scale * scale, 0, self.get_attrs("q_bits_bias")
    (b.qmin, b.qmax), b.dtype = bits2range(b.qbits, True), bits2dtype(b.qbits, True)
    b.betensor = linear_quantize_clip(b.betensor, b.scale, b.zerop, b.qmin, b.qmax)
    b.betensor += (inp.zerop * w.betensor.reshape(rows, -1).sum(1)).repeat(repeat)
    b.betensor = b.betensor.clamp(b.qmin, b.qmax)
    w.qinvariant = b.qinvariant = False


def finish(self, acc, axis=-1):
    out = self.outputs[0]
    m, n = numbers(self)
    return linear_requantize(
        act_int(self, acc),
        m,
        n,
        out.zerop,
        out.qmin,
        out.qmax,
        key_axis=axis if torch.as_tensor(m).numel() > 1 else None,
    )
