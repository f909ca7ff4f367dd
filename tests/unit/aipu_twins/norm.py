"""LayerNorm."""

from vendor_base import *


def table():
    m = 1.0 + torch.arange(193).double() / 64
    return (2.0**15 / m.sqrt()).round().clamp(max=32767)


def inverse_root(v, lut):
    v = v.clamp(min=1)
    half = (torch.frexp(v.double()).exponent.long() - 1) >> 1
    man = torch.where(22 - 2 * half >= 0, v << (22 - 2 * half).clamp(min=0), v >> (2 * half - 22).clamp(min=0))
    place, rest = (man >> 16) - 64, (man >> 1) & 32767
    low, high = lut[place], lut[place + 1]
    return ((low << 16) - ((low - high) * rest << 1)) >> half


def shifted(v, n):
    return torch.round(v.double() * 2.0**-n).long()


@op_register(OpType.LayerNorm, "1.1")
def norm(self, *args):
    inp, out, axes = self.inputs[0], self.outputs[0], self.get_param("axis")
    x = inp.betensor
    w = self.constants["weights"].betensor if "weights" in self.constants else None
    b = self.constants["biases"].betensor if "biases" in self.constants else None
    if not self.quantized:
        mean = x.mean(axes, keepdim=True)
        y = (x - mean) / torch.sqrt(((x - mean) ** 2).mean(axes, keepdim=True) + self.get_param("epsilon"))
        y = y if w is None else y * w
        out.betensor = y if b is None else y + b
        return
    x = x.long()
    count = math.prod(x.shape[a] for a in axes)
    mean = (x.double().sum(axes, keepdim=True) / count).round().long()
    dev = x - mean
    sq = (dev * dev).sum(axes, keepdim=True)
    vs, nm, ns = (self.get_param(k) for k in ("var_shift_value", "norm_scale_value", "norm_shift_value"))
    var = sq // count if inp.qbits > 8 else sq >> vs if vs >= 0 else torch.zeros_like(sq)
    root = (inverse_root(var, self.get_constant("lut").betensor.long()) + 32768) >> 16
    if inp.qbits <= 8:
        normal = shifted(dev * root * nm, 8 + ns)
    else:
        factor = shifted(root * nm, ns).clamp(0, 65535)
        normal = shifted((dev >> 1) * factor, 7)
    end = 1 << (out.qbits - 1)
    acc = normal.clamp(-end, end - 1).double()
    acc = acc if w is None else acc * w.double()
    if b is not None:
        most = max(float(b.max()), 1.0)
        least = min(float(b.min()), -1.0)
        n = math.ceil(max(math.log2(most / (2**31 - 1)), math.log2(-least / 2**31)))
        bb = b.double() if n <= 0 else (b.long() >> n << n).float().double()
        acc = acc + bb
    m, n = numbers(self)
    out.betensor = linear_requantize(
        acc, m, n, out.zerop, out.qmin, out.qmax, key_axis=-1 if torch.as_tensor(m).numel() > 1 else None
    )


@quant_register(OpType.LayerNorm, "1.1")
def norm_quantize(self, *args):
    inp, out = self.inputs[0], self.outputs[0]
    mode, bits = self.get_attrs("q_mode_activation"), self.get_attrs("q_bits_activation")
    decide(self, out, True)
    normal, count = (
        PyTensor("normal"),
        math.prod(inp.betensor.shape[a] if inp.betensor.numel() else inp.ir_shape[a] for a in self.get_param("axis")),
    )
    normal.min, normal.max = -(count**0.5), count**0.5
    steps = get_linear_quant_params_from_tensor(normal, mode, bits, is_signed=True)[0]
    if bits <= 8:
        room = (count - 1).bit_length() - 4
        room += room % 2
        self.params.update(var_shift_value=room, norm_scale_value=1, norm_shift_value=room // 2)
    else:
        m, n = one(steps / 127, bits)
        self.params.update(var_shift_value=0, norm_scale_value=m, norm_shift_value=n)
    self.constants["lut"] = PyTensor("lut", table().numpy().astype(dtype2nptype(Dtype.INT16)))
    self.constants["lut"].dtype = Dtype.INT16
    steps = steps.reshape(-1)
    if "weights" in self.constants:
        w = self.constants["weights"]
        w.qbits, w.qinvariant = self.get_attrs("q_bits_weight"), False
        w.scale, w.zerop, w.qmin, w.qmax, w.dtype = get_linear_quant_params_from_tensor(
            w, self.get_attrs("q_mode_weight"), w.qbits, is_signed=True
        )
        w.betensor = linear_quantize_clip(
            w.betensor, w.scale, w.zerop, w.qmin, w.qmax, key_axis=-1 if w.scale.numel() > 1 else None
        )
        steps = steps * w.scale
    if "biases" in self.constants:
        b = self.constants["biases"]
        b.qbits, b.qinvariant = self.get_attrs("q_bits_bias"), False
        b.scale, b.zerop, b.qmin, b.qmax = steps, 0, -(2 ** (b.qbits - 1)), 2 ** (b.qbits - 1) - 1
        b.dtype = bits2dtype(b.qbits, True)
        b.betensor = linear_quantize_clip(
            b.betensor, steps, 0, b.qmin, b.qmax, key_axis=-1 if steps.numel() > 1 else None
        )
    put(self, *approx(out.scale / steps, mult_bits(self)))
