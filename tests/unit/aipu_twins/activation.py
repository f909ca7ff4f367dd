"""Activation of every method."""

from vendor_base import *

SIGNED = {"RELU": False, "SIGMOID": False, "TANH": True, "LEAKYRELU": True}


def real(self, v):
    method = self.get_param("method")
    if method == "RELU":
        return v.clamp(min=0)
    if method == "SIGMOID":
        return torch.sigmoid(v)
    if method == "TANH":
        return torch.tanh(v)
    if method == "LEAKYRELU":
        return torch.where(v < 0, v * self.get_param("negative_slope_value"), v)
    return v.clamp(self.get_param("clip_min"), self.get_param("clip_max"))


@op_register(OpType.Activation, "1.1")
def activation(self, *args):
    inp, out = self.inputs[0], self.outputs[0]
    method = self.get_param("method")
    if not self.quantized:
        out.betensor = real(self, inp.betensor)
        return
    if method in ("SIGMOID", "TANH"):
        out.betensor = lookup_lut_powerof2(
            inp.betensor,
            self.get_constant("lut").betensor,
            inp.qbits,
            is_signed(inp.dtype),
            out.qbits,
            is_signed(out.dtype),
        )
        return
    c, m, n = inp.betensor.double() + inp.zerop, self.get_param("scale_value"), self.get_param("shift_value")
    if method == "RELU":
        out.betensor = linear_requantize(c.clamp(min=0), m, n, out.zerop, out.qmin, out.qmax)
    elif method == "LEAKYRELU":
        slope = self.get_param("negative_slope_value")
        low = linear_requantize(c.clamp(max=0), slope, out.qbits, 0, -(2.0**47), 2.0**47 - 1)
        out.betensor = linear_requantize(c.clamp(min=0) + low, m, n, out.zerop, out.qmin, out.qmax)
    else:
        r = 8 if out.qbits <= 8 else 0
        y = linear_requantize(c, m, n - r, 0, self.get_param("clip_min"), self.get_param("clip_max"))
        out.betensor = linear_requantize(y, 1, r, out.zerop, out.qmin, out.qmax)


def build_table(self):
    inp, out = self.inputs[0], self.outputs[0]
    size = 2 ** min(inp.qbits, self.get_attrs("lut_items_in_bits"))
    low, high = bits2range(inp.qbits, is_signed(inp.dtype))
    step = (high - low + 1) // size
    grid = torch.arange(low, high + 1, step).double()
    return linear_quantize_clip(
        real(self, linear_dequantize(grid, inp.scale, inp.zerop)), out.scale, out.zerop, out.qmin, out.qmax
    )


@quant_register(OpType.Activation, "1.1")
def activation_quantize(self, *args):
    inp, out = self.inputs[0], self.outputs[0]
    method = self.get_param("method")
    signed = self.get_param("clip_min") < 0 if method == "CLIP" else SIGNED[method]
    if method == "CLIP":
        least, most = (torch.tensor(self.get_param(key), dtype=torch.float32) for key in ("clip_min", "clip_max"))
        low, high = out.min.float(), out.max.float()
        out.min, out.max = (
            torch.minimum(torch.maximum(low, least), most),
            torch.maximum(torch.minimum(high, most), least),
        )
    decide(self, out, signed)
    if method in ("SIGMOID", "TANH"):
        self.constants["lut"] = PyTensor(self.name + "/lut", build_table(self).numpy().astype(dtype2nptype(out.dtype)))
        self.constants["lut"].dtype = out.dtype
        return
    put(self, *approx(out.scale / inp.scale, out.qbits))
    if method == "LEAKYRELU":
        k = round(float(self.params["negative_slope_value"]) * 2**out.qbits)
        self.params["negative_slope_value"] = k
        self.params["negative_slope_type"] = range2dtype(min(0, k), max(0, k))[1]
    if method == "CLIP":
        s, z = (out.scale * 256, 0) if out.qbits <= 8 else (out.scale, int(out.zerop))
        for key in ("clip_min", "clip_max"):
            self.params[key] = int(linear_quantize_clip(torch.tensor(self.params[key]), s, z, -(2**31), 2**31 - 1))
