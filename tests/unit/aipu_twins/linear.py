"""Products with stored weights, with_activation NONE, RELU or RELU6."""

import torch.nn.functional as F
from vendor_base import *


@op_register(OpType.Convolution, "1.1")
def conv(self, *args):
    inp, out = self.inputs[0], self.outputs[0]
    x, w, b = inp.betensor, self.get_constant("weights").betensor, self.get_constant("biases").betensor
    outside = 0.0
    if self.quantized:
        x, w, b, outside = x.double(), w.double(), b.double(), -float(inp.zerop)
    sides = [self.get_param("pad_" + side) for side in ("left", "right", "top", "bottom")]
    steps = [(self.get_param(f"{key}_y"), self.get_param(f"{key}_x")) for key in ("stride", "dilation")]
    padded = F.pad(nhwc2nchw(x), sides, value=outside)
    y = nchw2nhwc(F.conv2d(padded, nhwc2nchw(w), b, steps[0], 0, steps[1], self.get_param("group")))
    out.betensor = finish(self, y) if self.quantized else act_float(self, y)


@quant_register(OpType.Convolution, "1.1")
def conv_quantize(self, *args):
    linear_quantize(self)


@op_register(OpType.Convolution3D, "1.1")
def conv3d(self, *args):
    inp, out = self.inputs[0], self.outputs[0]
    x, w, b = inp.betensor, self.get_constant("weights").betensor, self.get_constant("biases").betensor
    outside = 0.0
    if self.quantized:
        x, w, b, outside = x.double(), w.double(), b.double(), -float(inp.zerop)
    sides = [self.get_param(f"pad_{a}_{e}") for a in "xyz" for e in ("begin", "end")]
    steps = [tuple(self.get_param(f"{key}_{a}") for a in "zyx") for key in ("stride", "dilation")]
    first = lambda t: t.permute(0, 4, 1, 2, 3)
    y = F.conv3d(
        F.pad(first(x), sides, value=outside),
        w.permute(0, 4, 3, 1, 2).contiguous(),
        b,
        steps[0],
        0,
        steps[1],
        self.get_param("group"),
    )
    y = y.permute(0, 2, 3, 4, 1)
    out.betensor = finish(self, y) if self.quantized else act_float(self, y)


@quant_register(OpType.Convolution3D, "1.1")
def conv3d_quantize(self, *args):
    linear_quantize(self)


@op_register(OpType.DepthwiseConv, "1.1")
def dwconv(self, *args):
    inp, out = self.inputs[0], self.outputs[0]
    x, w, b = inp.betensor, self.get_constant("weights").betensor, self.get_constant("biases").betensor
    outside = 0.0
    if self.quantized:
        x, w, b, outside = x.double(), w.double(), b.double(), -float(inp.zerop)
    sides = [self.get_param("pad_" + side) for side in ("left", "right", "top", "bottom")]
    steps = [(self.get_param(f"{key}_y"), self.get_param(f"{key}_x")) for key in ("stride", "dilation")]
    padded = F.pad(nhwc2nchw(x), sides, value=outside)
    y = nchw2nhwc(F.conv2d(padded, nhwc2nchw(w), b, steps[0], 0, steps[1], self.get_param("group")))
    out.betensor = finish(self, y) if self.quantized else act_float(self, y)


@quant_register(OpType.DepthwiseConv, "1.1")
def dwconv_quantize(self, *args):
    group = self.params.pop("group")
    linear_quantize(self)
    self.params["group"] = group
    for key in ("scale", "shift"):
        if key + "_value" in self.params:
            kind = self.params.pop(key + "_type")
            number = torch.full((self.constants["weights"].shape[0],), float(self.params.pop(key + "_value")))
            self.constants[key] = PyTensor(self.name + key, number.numpy().astype(dtype2nptype(kind)))


@op_register(OpType.ConvTranspose, "1.1")
def deconv(self, *args):
    inp, out = self.inputs[0], self.outputs[0]
    x, w, b = inp.betensor, self.get_constant("weights").betensor, self.get_constant("biases").betensor
    g = self.get_param("group")
    if self.quantized:
        x, w = x.double() + inp.zerop, w.double()
        b = b.double() - (inp.zerop * w.reshape(w.shape[0], -1).sum(1)).repeat(g)
    steps = {
        key: (self.get_param(f"{key}_y"), self.get_param(f"{key}_x"))
        for key in ("stride", "dilation", "output_padding")
    }
    wt = w.permute(3, 0, 1, 2)  # [I, O/g, kh, kw]
    (sy, sx), (dy, dx), (py, px) = steps["stride"], steps["dilation"], steps["output_padding"]
    full = [
        (x.shape[1] - 1) * sy + (w.shape[1] - 1) * dy + 1 + py,
        (x.shape[2] - 1) * sx + (w.shape[2] - 1) * dx + 1 + px,
    ]
    y = F.conv_transpose2d(nhwc2nchw(x), wt, None, (sy, sx), 0, 0, g, (dy, dx))
    y = F.pad(y, (0, full[1] - y.shape[3], 0, full[0] - y.shape[2])) + b.reshape(1, -1, 1, 1)
    t, l, bo, r = (self.get_param("pad_" + s) for s in ("top", "left", "bottom", "right"))
    y = nchw2nhwc(y[:, :, t : full[0] - bo, l : full[1] - r])
    out.betensor = finish(self, y) if self.quantized else act_float(self, y)


@quant_register(OpType.ConvTranspose, "1.1")
def deconv_quantize(self, *args):
    linear_quantize(self, repeat=int(self.get_param("group")))


@op_register(OpType.FullyConnected, "1.1")
def fc(self, *args):
    inp, out = self.inputs[0], self.outputs[0]
    x, w, b = inp.betensor, self.get_constant("weights").betensor, self.get_constant("biases").betensor
    if self.quantized:
        x, w, b = x.double(), w.double(), b.double()
    y = x @ w.T + b
    out.betensor = finish(self, y) if self.quantized else act_float(self, y)


@quant_register(OpType.FullyConnected, "1.1")
def fc_quantize(self, *args):
    linear_quantize(self)


@op_register(OpType.BatchNorm, "1.1")
def bn(self, *args):
    inp, out = self.inputs[0], self.outputs[0]
    x, w, b = inp.betensor, self.get_constant("weights").betensor, self.get_constant("biases").betensor
    axis = self.get_param("axis")
    y = x.float().movedim(axis, -1) * w.float() + b.float()
    if self.quantized:
        y = finish(self, y)
    out.betensor = y.movedim(-1, axis)


@quant_register(OpType.BatchNorm, "1.1")
def bn_quantize(self, *args):
    linear_quantize(self, wbits=16)
