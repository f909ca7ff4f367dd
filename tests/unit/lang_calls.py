"""Legal calls of every operator function, drawn from a number: what builds graphs for the tests of quantizer.lang."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

import quantizer.lang as tpul
from quantizer.lang import Scalar, Tensor

ROUND = ("half_away_from_zero", "half_up", "half_down", "half_to_even", "towards_zero", "up", "down")


class Draw:
    """Choices and values derived from a key."""

    def __init__(self, key: str) -> None:
        self.key, self.count = key, 0

    def number(self, low: int, high: int) -> int:
        self.count += 1
        digest = hashlib.sha256(f"{self.key}/{self.count}".encode()).digest()
        return low + int.from_bytes(digest[:8], "little") % (high - low + 1)

    def one(self, *items: Any) -> Any:
        return items[self.number(0, len(items) - 1)]

    def shape(self, rank: int, low: int = 2, high: int = 5) -> list[int]:
        return [self.number(low, high) for _ in range(rank)]

    def array(self, shape: Any, dtype: str = "float32", low: float = -4.0, high: float = 4.0) -> np.ndarray:
        self.count += 1
        seed = hashlib.sha256(f"{self.key}/{self.count}".encode()).digest()
        size = int(np.prod(shape))
        raw = np.frombuffer(hashlib.shake_256(seed).digest(4 * size), dtype="<u4").astype(np.float64) / 2**32
        if "float" in dtype:
            return (
                (np.floor(4 * (low + raw * (high - low))) / 4).astype(dtype).reshape(shape)
            )  # sums of quarters are exact
        info = np.iinfo(dtype)
        first, last = max(info.min, -(1 << 20)), min(info.max, 1 << 20)
        return np.floor(first + raw * (last - first + 1)).clip(first, last).astype(dtype).reshape(shape)

    def coeff(self, shape: Any, dtype: str = "float32", **span: float) -> Tensor:
        return Tensor(ttype="coeff", data=self.array(shape, dtype, **span), dtype=dtype)

    def scale(self) -> float:
        return self.number(1, 64) / 512

    def zero(self, dtype: str) -> int:
        info = np.iinfo(dtype)
        return self.number(info.min // 4, info.max // 4)


@dataclass
class Built:
    """A graph with one call, values for its inputs, and the result of the call."""

    graph: tpul.Graph
    feeds: dict[str, np.ndarray]
    results: list[Tensor]


def _quantized(d: Draw, dtype: str, count: int) -> dict[str, Any]:
    if "float" in dtype or d.one(True, False, False):
        return {}
    return {"scale": [d.scale() for _ in range(count)], "zero_point": [d.zero(dtype) for _ in range(count)]}


def _x(d: Draw, feeds: list[Any], shape: Any, dtype: str = "float32", **span: float) -> Tensor:
    tensor = Tensor(list(shape), dtype=dtype)
    feeds.append((tensor, d.array(shape, dtype, **span)))
    return tensor


CALLS: dict[str, Callable[[Draw, list[Any]], Any]] = {}


def call(*names: str) -> Any:
    def register(function: Any) -> Any:
        for name in names:
            CALLS[name] = lambda d, feeds, name=name: function(d, feeds, name)
        return function

    return register


def _conv_sizes(d: Draw, rank: int, group: int, deconv: bool = False) -> tuple[list[int], list[int], dict[str, Any]]:
    ic, oc = group * d.number(1, 3), group * d.number(1, 3)
    kernel = [d.number(1, 3) for _ in range(rank)]
    dilation = [d.number(1, 2) for _ in range(rank)]
    reach = [(k - 1) * h for k, h in zip(kernel, dilation, strict=True)]
    pad = [d.number(0, r) for r in reach + reach]
    stride = [d.number(1, 2) for _ in range(rank)]
    sizes = [d.number(5, 7) for _ in range(rank)]
    args: dict[str, Any] = {"stride": stride, "dilation": dilation, "pad": pad, "group": group}
    if deconv:
        args["output_padding"] = [d.number(0, s - 1) for s in stride]
    weight = [oc // group, ic, *kernel] if deconv else [oc, ic // group, *kernel]
    return [d.number(1, 2), ic, *sizes], weight, args


def _filters(weight: list[int], args: dict[str, Any], name: str) -> int:
    return weight[0] * (args["group"] if "deconv" in name else 1)


@call("conv", "conv3d", "deconv", "deconv3d", "conv_v2")
def _conv(d: Draw, feeds: list[Any], name: str) -> Any:
    rank = 3 if "3d" in name else 2
    shape, weight, args = _conv_sizes(d, rank, d.one(1, 2), "deconv" in name)
    bias = (
        None
        if d.one(True, False)
        else d.coeff([1, weight[0], 1, 1] if name == "conv_v2" else [_filters(weight, args, name)])
    )
    x, w = _x(d, feeds, shape), d.coeff(weight)
    return getattr(tpul, name)(x, w, bias, **args)


@call("conv_int", "conv3d_int", "deconv_int", "conv_quant", "conv3d_quant")
def _conv_codes(d: Draw, feeds: list[Any], name: str) -> Any:
    rank = 3 if "3d" in name else 2
    shape, weight, args = _conv_sizes(d, rank, d.one(1, 2), "deconv" in name)
    xt, wt = d.one("int8", "uint8"), d.one("int8", "uint8")
    x, w = _x(d, feeds, shape, xt), d.coeff(weight, wt)
    bias = None if d.one(True, False) else d.coeff([_filters(weight, args, name)], "int32")
    args |= {"input_zp": d.zero(xt), "weight_zp": d.zero(wt)}
    if "quant" in name:
        each = d.one(True, False)
        scale = [d.scale() for _ in range(weight[0])] if each else d.scale()
        out = d.one("int8", "uint8")
        args |= {
            "input_scale": d.scale(),
            "weight_scale": scale,
            "output_scale": 40.0 * d.scale(),
            "out_dtype": out,
            "output_zp": d.zero(out),
        }
    return getattr(tpul, name)(x, w, bias, **args)


def _matrices(d: Draw) -> tuple[list[int], list[int], bool]:
    batch = d.shape(d.number(0, 2), 1, 3)
    m, k, n = d.shape(3, 1, 5)
    turned = d.one(True, False)
    right = [n, k] if turned else [k, n]
    return [*batch, m, k], ([*batch, *right] if d.one(True, False) else right), turned


@call("matmul")
def _matmul(d: Draw, feeds: list[Any], name: str) -> Any:
    left, right, turned = _matrices(d)
    n = right[-2] if turned else right[-1]
    bias = d.coeff([n]) if d.one(True, False) else None
    return tpul.matmul(_x(d, feeds, left), d.coeff(right), bias, right_transpose=turned, keep_dims=d.one(True, False))


@call("matmul_int", "matmul_quant", "matmulrq_int_op")
def _matmul_codes(d: Draw, feeds: list[Any], name: str) -> Any:
    left, right, turned = _matrices(d)
    xt, wt = d.one("int8", "uint8"), d.one("int8", "uint8")
    n = right[-2] if turned else right[-1]
    bias = d.coeff([n], "int32") if d.one(True, False) else None
    x, w = _x(d, feeds, left, xt), d.coeff(right, wt)
    if name == "matmulrq_int_op":
        each = d.one(True, False)
        mul = [d.number(1, 1 << 30) for _ in range(n)] if each else d.number(1, 1 << 30)
        shift = [d.number(20, 45) for _ in range(n)] if each else d.number(20, 45)
        return tpul.matmulrq_int_op(
            x,
            w,
            bias,
            right_transpose=turned,
            multiplier=mul,
            shift=shift,
            offset=d.number(-9, 9),
            requant_mode=d.number(0, 2),
            round_mode=d.one(*ROUND),
        )
    args: dict[str, Any] = {"input_zp": d.zero(xt), "right_zp": d.zero(wt), "right_transpose": turned}
    if name == "matmul_quant":
        args |= {
            "input_scale": d.scale(),
            "right_scale": d.scale(),
            "output_scale": 40 * d.scale(),
            "output_zp": d.number(0, 9),
        }
    return getattr(tpul, name)(x, w, bias, **args)


@call("add", "sub", "mul", "max", "min")
def _binary(d: Draw, feeds: list[Any], name: str) -> Any:
    kinds = ["float32", "float16", "int8", "uint8", *(["int16", "int32"] if name in ("max", "min") else [])]
    kind = d.one(*kinds)
    shape = d.shape(d.number(1, 4))
    other = [d.one(1, n) for n in shape][d.number(0, len(shape) - 1) :]
    args = _quantized(d, kind, 3) if kind in ("int8", "uint8") else {}
    if name == "sub" and kind == "uint8":
        args = {}
    x = _x(d, feeds, shape, kind)
    number = d.one(3, Scalar(2, kind))
    y = d.one(lambda: _x(d, feeds, other, kind), lambda: d.coeff(other, kind), lambda: number)()
    if "float" in kind and isinstance(y, int):
        y = 1.5
    return getattr(tpul, name)(*d.one((x, y), (y, x)), **args)


@call("div")
def _div(d: Draw, feeds: list[Any], name: str) -> Any:
    kind = d.one("float32", "float16")
    x = _x(d, feeds, d.shape(3), kind, low=0.5)
    return d.one(lambda: tpul.div(x, 4.0), lambda: tpul.div(2.5, x), lambda: tpul.div(x, x))()


@call("add_shift", "sub_shift", "mul_shift")
def _shift(d: Draw, feeds: list[Any], name: str) -> Any:
    a, b = d.one("int8", "uint8", "int16", "int32"), d.one("int8", "uint8", "int16", "uint16")
    shape = d.shape(3)
    out = d.one("int8", "int16", "int32") if name == "sub_shift" else d.one("int8", "uint8", "int16", "uint32")
    x = _x(d, feeds, shape, a)
    y = d.one(lambda: _x(d, feeds, shape, b), lambda: d.number(-99, 99))()
    return getattr(tpul, name)(*d.one((x, y), (y, x)), d.number(-12, 4), out, d.one(*ROUND), d.one(True, False))


@call("copy", "relu", "abs")
def _plain(d: Draw, feeds: list[Any], name: str) -> Any:
    return getattr(tpul, name)(_x(d, feeds, d.shape(d.number(1, 4)), d.one("float32", "float16", "int8", "uint8")))


@call("leaky_relu")
def _leaky(d: Draw, feeds: list[Any], name: str) -> Any:
    x = _x(d, feeds, d.shape(3), d.one("float32", "int8", "uint8"))
    return tpul.leaky_relu(x, d.number(1, 9) / 16, round_mode=d.one(*ROUND))


@call("prelu")
def _prelu(d: Draw, feeds: list[Any], name: str) -> Any:
    x = _x(d, feeds, d.shape(4))
    return tpul.prelu(x, d.coeff([1, x.shape[1], 1, 1]))


SCALED = ["ceil", "floor", "sin", "cos", "exp", "ln", "tanh", "sigmoid", "elu", "square", "sqrt", "rsqrt", "silu", "erf", "log_sigmoid", "mish", "hswish", "sinh", "cosh", "sign", "gelu", "hsigmoid"]  # fmt: skip


@call(*SCALED)
def _scaled(d: Draw, feeds: list[Any], name: str) -> Any:
    kind = d.one("float32", "int8", "uint8")
    low = 0.25 if name in ("ln", "sqrt", "rsqrt") else -3.0
    return getattr(tpul, name)(_x(d, feeds, d.shape(d.number(1, 4)), kind, low=low), **_quantized(d, kind, 2))


@call("swish")
def _swish(d: Draw, feeds: list[Any], name: str) -> Any:
    kind = d.one("float32", "int8")
    return tpul.swish(
        _x(d, feeds, d.shape(3), kind), d.number(1, 8) / 4, **_quantized(d, kind, 2), round_mode=d.one(*ROUND)
    )


@call("round", "tan", "arccos", "arctanh")
def _floats(d: Draw, feeds: list[Any], name: str) -> Any:
    span = {"low": -0.9, "high": 0.9} if name.startswith("arc") else {}
    return getattr(tpul, name)(_x(d, feeds, d.shape(3), **span))


@call("softmax")
def _softmax(d: Draw, feeds: list[Any], name: str) -> Any:
    return tpul.softmax(_x(d, feeds, d.shape(3)), d.number(-3, 2))


@call("softmax_int")
def _softmax_int(d: Draw, feeds: list[Any], name: str) -> Any:
    kind = d.one("int8", "uint8")
    return tpul.softmax_int(
        _x(d, feeds, d.shape(3), kind),
        d.number(-3, 2),
        [d.scale(), 1 / 256],
        [d.zero(kind), 0],
        round_mode=d.one(*ROUND),
    )


@call("cast")
def _cast(d: Draw, feeds: list[Any], name: str) -> Any:
    kinds = ("float32", "float16", "int32", "int16", "int8", "uint8", "uint16")
    x = _x(d, feeds, d.shape(3), d.one(*kinds), low=-40.0, high=300.0)
    return tpul.cast(x, d.one(*kinds), round_mode=d.one(*(m for m in ROUND if m not in ("half_up", "half_down"))))


@call("clamp")
def _clamp(d: Draw, feeds: list[Any], name: str) -> Any:
    return tpul.clamp(_x(d, feeds, d.shape(3)), -d.number(0, 2) / 2, d.number(0, 4) / 2)


@call("requant_fp_to_int")
def _to_int(d: Draw, feeds: list[Any], name: str) -> Any:
    kind, shape = d.one("int8", "uint8", "int16"), d.shape(3)
    each = d.one(True, False)
    scale = [d.scale() for _ in range(shape[1])] if each else d.scale()
    modes = [m for m in ROUND if not each or m not in ("half_up", "half_down")]
    return tpul.requant_fp_to_int(
        _x(d, feeds, shape), scale, d.zero(kind), d.number(0, 1), kind, round_mode=d.one(*modes)
    )


@call("dequant_int_to_fp")
def _to_fp(d: Draw, feeds: list[Any], name: str) -> Any:
    kind, shape = d.one("int8", "uint8", "int16", "uint16"), d.shape(3)
    scale = [d.scale() for _ in range(shape[1])] if d.one(True, False) else d.scale()
    return tpul.dequant_int_to_fp(_x(d, feeds, shape, kind), scale, d.zero(kind))


@call("requant_int")
def _requant(d: Draw, feeds: list[Any], name: str) -> Any:
    shape, axis = d.shape(3), d.number(0, 2)
    mode = d.number(0, 2)
    each = d.one(True, False)
    count = shape[axis]
    mul = [d.number(1, (1 << 31) - 1) for _ in range(count)] if each else d.number(1, (1 << 31) - 1)
    low, high = (-44, -20) if mode == 2 else (-14, 3)
    shift = [d.number(low, high) for _ in range(count)] if each else d.number(low, high)
    out = d.one("int8", "uint8", "int16")
    offset = [d.zero(out) for _ in range(count)] if d.one(True, False) else d.zero(out)
    return tpul.requant_int(
        _x(d, feeds, shape, d.one("int32", "int16")),
        mul,
        shift,
        offset,
        mode,
        out,
        round_mode=d.one(*ROUND),
        rq_axis=axis,
    )


@call("dequant_int")
def _dequant(d: Draw, feeds: list[Any], name: str) -> Any:
    x = _x(d, feeds, d.shape(3), d.one("int8", "uint8", "int16"))
    return tpul.dequant_int(
        x,
        d.number(1, 1 << 20),
        d.number(-14, 2),
        d.zero(x.dtype),
        d.number(0, 8),
        d.number(0, 1),
        d.one("int16", "int32"),
        round_mode=d.one(*ROUND),
    )


@call("requant_fp")
def _requant_fp(d: Draw, feeds: list[Any], name: str) -> Any:
    x = _x(d, feeds, d.shape(3), d.one("float32", "int32", "int8"))
    each = d.one(True, False)
    scale = [d.scale() for _ in range(x.shape[1])] if each else d.scale()
    return tpul.requant_fp(x, scale, float(d.number(-5, 5)), d.one("int8", "uint8", "int16"), round_mode=d.one(*ROUND))


@call("maxpool2d", "maxpool3d", "avgpool2d", "avgpool3d", "maxpool2d_with_mask")
def _pool(d: Draw, feeds: list[Any], name: str) -> Any:
    rank = 3 if "3d" in name else 2
    kind = "float32" if "mask" in name else d.one("float32", "int8", "uint8")
    x = _x(d, feeds, [d.number(1, 2), d.number(1, 3), *d.shape(rank, 4, 7)], kind)
    args: dict[str, Any] = {} if "mask" in name else _quantized(d, kind, 2)
    if d.one(True, True, True, False):
        kernel = [d.number(1, 3) for _ in range(rank)]
        args |= {
            "kernel": kernel,
            "stride": [d.number(1, 2) for _ in range(rank)],
            "pad": [d.number(0, k - 1) for k in kernel + kernel],
            "ceil_mode": d.one(True, False),
        }
    if "avg" in name:
        args |= {
            "count_include_pad": d.one(True, False) and not args.get("ceil_mode", False),
            "round_mode": d.one(*ROUND),
        }
    return getattr(tpul, name)(x, **args)


@call("arg")
def _arg(d: Draw, feeds: list[Any], name: str) -> Any:
    return tpul.arg(
        _x(d, feeds, d.shape(3), d.one("float32", "int8", "int32")),
        d.one("max", "min"),
        d.number(-3, 2),
        d.one(True, False),
    )


@call("sort", "argsort")
def _sort(d: Draw, feeds: list[Any], name: str) -> Any:
    return getattr(tpul, name)(_x(d, feeds, d.shape(3), d.one("float32", "int32")), d.number(-3, 2), d.one(True, False))


@call("sort_by_key")
def _sort_by_key(d: Draw, feeds: list[Any], name: str) -> Any:
    shape, axis = d.shape(3), d.number(0, 2)
    return tpul.sort_by_key(_x(d, feeds, shape), _x(d, feeds, [shape[axis]]), axis, d.one(True, False))


@call("topk")
def _topk(d: Draw, feeds: list[Any], name: str) -> Any:
    return tpul.topk(_x(d, feeds, d.shape(3)), d.number(-3, 2), d.number(1, 2))


def _moved(d: Draw, feeds: list[Any], rank: int | None = None) -> Tensor:
    return _x(d, feeds, d.shape(rank or d.number(1, 4)), d.one("float32", "float16", "int8", "uint8", "int16"))


@call("permute")
def _permute(d: Draw, feeds: list[Any], name: str) -> Any:
    return tpul.permute(_moved(d, feeds, 3), d.one([0, 2, 1], [2, 0, 1], [1, 0, 2]))


@call("tile")
def _tile(d: Draw, feeds: list[Any], name: str) -> Any:
    x = _moved(d, feeds)
    return tpul.tile(x, [d.number(1, 3) for _ in x.shape])


@call("repeat")
def _repeat(d: Draw, feeds: list[Any], name: str) -> Any:
    x = _moved(d, feeds)
    counts = np.array([d.number(1, 3) for _ in x.shape], dtype=np.int32)
    return tpul.repeat(x, Tensor(ttype="coeff", data=counts, dtype="int32"))


@call("broadcast")
def _broadcast(d: Draw, feeds: list[Any], name: str) -> Any:
    wanted = d.shape(3)
    return tpul.broadcast(_x(d, feeds, [d.one(1, n) for n in wanted], d.one("float32", "int8")), wanted)


@call("concat")
def _concat(d: Draw, feeds: list[Any], name: str) -> Any:
    kind, shape, axis = d.one("float32", "int8", "uint8"), d.shape(3), d.number(0, 2)
    parts = [_x(d, feeds, [d.number(1, 4) if i == axis else n for i, n in enumerate(shape)], kind) for _ in range(3)]
    args = _quantized(d, kind, 4)
    return tpul.concat(parts, args.get("scale"), args.get("zero_point"), axis, dtype=kind, round_mode=d.one(*ROUND))


@call("nonzero")
def _nonzero(d: Draw, feeds: list[Any], name: str) -> Any:
    x = _x(d, feeds, d.shape(3))
    feeds[-1][1][feeds[-1][1] < 0] = 0
    return tpul.nonzero(x)


@call("upsample")
def _upsample(d: Draw, feeds: list[Any], name: str) -> Any:
    return tpul.upsample(_x(d, feeds, d.shape(4), d.one("float32", "int8")), d.number(1, 3))


@call("interpolate")
def _interpolate(d: Draw, feeds: list[Any], name: str) -> Any:
    mode = d.one("align_corners", "pytorch_half_pixel", "half_pixel", "asymmetric")
    method = d.one("nearest", "linear")
    return tpul.interpolate(
        _x(d, feeds, [1, 2, *d.shape(2, 3, 6)]), d.one(0.5, 1.5, 2.0), d.one(0.5, 1.0, 1.5), method, mode
    )


@call("interpolate_v2")
def _interpolate_v2(d: Draw, feeds: list[Any], name: str) -> Any:
    sizes = Tensor(ttype="coeff", data=np.array(d.shape(2, 3, 9), dtype=np.int32), dtype="int32")
    return tpul.interpolate_v2(_x(d, feeds, [1, 2, *d.shape(2, 3, 6)]), sizes=sizes, method=d.one("nearest", "linear"))


@call("reduce")
def _reduce(d: Draw, feeds: list[Any], name: str) -> Any:
    method = d.one("ReduceMin", "ReduceMax", "ReduceMean", "ReduceProd", "ReduceL2", "ReduceL1", "ReduceSum")
    return tpul.reduce(_x(d, feeds, d.shape(3)), method, d.one(1, [0, 2], [-1]), d.one(True, False))


@call("unsqueeze")
def _unsqueeze(d: Draw, feeds: list[Any], name: str) -> Any:
    return tpul.unsqueeze(_moved(d, feeds, 2), d.one([0], [1, 2], [-1]))


@call("squeeze")
def _squeeze(d: Draw, feeds: list[Any], name: str) -> Any:
    return tpul.squeeze(_x(d, feeds, [1, d.number(2, 4), 1], "int8"), d.one([0], [2], [0, -1]))


@call("split")
def _split(d: Draw, feeds: list[Any], name: str) -> Any:
    x = _x(d, feeds, [2, 6, 3], d.one("float32", "int8"))
    return tpul.split(x, 1, *d.one((2, ()), (3, ()), (2, [1, 5])))


@call("slice")
def _slice(d: Draw, feeds: list[Any], name: str) -> Any:
    x = _x(d, feeds, d.shape(3, 4, 6), d.one("float32", "int8"))
    return d.one(
        lambda: tpul.slice(x, [1, 0], [3, -1]), lambda: tpul.slice(x, 3, 0, -1, 2), lambda: tpul.slice(x, 0, 99, 2)
    )()


@call("extract")
def _extract(d: Draw, feeds: list[Any], name: str) -> Any:
    return tpul.extract(_moved(d, feeds, 3), [0, 1, 0], None, [1, 1, d.number(1, 2)])


@call("pad")
def _pad(d: Draw, feeds: list[Any], name: str) -> Any:
    x = _x(d, feeds, d.shape(3, 3, 5), d.one("float32", "int8", "uint8"))
    method = d.one("constant", "reflect", "symmetric", "edge")
    value = Scalar(2.0) if method == "constant" and "float" in x.dtype else None
    return tpul.pad(x, method, value, [d.number(0, 2) for _ in range(6)])


@call("roll")
def _roll(d: Draw, feeds: list[Any], name: str) -> Any:
    x = _moved(d, feeds, 3)
    return d.one(lambda: tpul.roll(x, d.number(-9, 9)), lambda: tpul.roll(x, [1, d.number(-3, 3)], [0, 2]))()


@call("reshape")
def _reshape(d: Draw, feeds: list[Any], name: str) -> Any:
    shape = d.one([6, 4], [0, -1], [2, 3, -1])
    x = _x(d, feeds, [2, 3, 4], d.one("float32", "int8"))
    wanted = Tensor(ttype="coeff", data=np.array(shape, dtype=np.int32), dtype="int32")
    return tpul.reshape(x, d.one(shape, wanted))


@call("shape_fetch")
def _shape_fetch(d: Draw, feeds: list[Any], name: str) -> Any:
    return tpul.shape_fetch(_moved(d, feeds, 3), d.one(None, 0, 1), d.one(None, 3), d.number(1, 2))


@call("batch_norm")
def _batch_norm(d: Draw, feeds: list[Any], name: str) -> Any:
    x = _x(d, feeds, d.shape(d.number(2, 4)))
    one = [x.shape[1]]
    more = (d.coeff(one), d.coeff(one)) if d.one(True, False) else (None, None)
    return tpul.batch_norm(x, d.coeff(one), d.coeff(one, low=0.5), *more)


@call("layer_norm", "group_norm")
def _norm(d: Draw, feeds: list[Any], name: str) -> Any:
    x = _x(d, feeds, [2, 4, *d.shape(2)])
    if name == "layer_norm":
        axis = d.number(1, 3)
        both = [d.coeff(x.shape[axis:]) for _ in range(2)] if d.one(True, False) else [None, None]
        return tpul.layer_norm(x, *both, axis=axis)
    both = [d.coeff([4]) for _ in range(2)] if d.one(True, False) else [None, None]
    return tpul.group_norm(x, *both, num_groups=d.one(1, 2, 4))


@call("rms_norm")
def _rms_norm(d: Draw, feeds: list[Any], name: str) -> Any:
    x = _x(d, feeds, d.shape(3))
    return tpul.rms_norm(x, d.one(None, d.coeff([x.shape[-1]])))


@call("normalize")
def _normalize(d: Draw, feeds: list[Any], name: str) -> Any:
    return tpul.normalize(_x(d, feeds, d.shape(3)), d.one(1.0, 2.0, 3.0), d.one(1, [1, 2], -1))


@call("gt", "lt", "ge", "le", "eq", "ne")
def _compare(d: Draw, feeds: list[Any], name: str) -> Any:
    kind, shape = d.one("float32", "int8", "uint8"), d.shape(3)
    args = _quantized(d, kind, 3)
    if args:
        args["scale"][1], args["zero_point"][1] = args["scale"][0], args["zero_point"][0]
    return getattr(tpul, name)(_x(d, feeds, shape, kind), _x(d, feeds, shape, kind), **args)


@call("gts", "lts", "ges", "les", "eqs", "nes")
def _compare_number(d: Draw, feeds: list[Any], name: str) -> Any:
    kind = d.one("float32", "int8", "uint8")
    return getattr(tpul, name)(_x(d, feeds, d.shape(3), kind), d.one(1, 0.5), **_quantized(d, kind, 2))


@call("lut")
def _lut(d: Draw, feeds: list[Any], name: str) -> Any:
    return tpul.lut(_x(d, feeds, d.shape(3), d.one("int8", "uint8")), d.coeff([256], d.one("int8", "uint8")))


@call("cond_select", "select")
def _select(d: Draw, feeds: list[Any], name: str) -> Any:
    shape = d.shape(3)
    branches = [d.one(lambda: _x(d, feeds, shape), lambda: Scalar(2.5))() for _ in range(2)]
    if name == "select":
        return tpul.select(_x(d, feeds, shape), _x(d, feeds, shape), *branches, d.one("Greater", "Less", "NotEqual"))
    cond = _x(d, feeds, shape)
    feeds[-1][1][feeds[-1][1] < 0] = 0
    return tpul.cond_select(cond, *branches)


@call("index_select")
def _index_select(d: Draw, feeds: list[Any], name: str) -> Any:
    index = Tensor(ttype="coeff", data=np.array(d.one([0, 1, 1], [-1]), dtype=np.int32), dtype="int32")
    return tpul.index_select(_moved(d, feeds, 3), index, d.number(-3, 2), keep_dims=d.one(True, False))


@call("scatter")
def _scatter(d: Draw, feeds: list[Any], name: str) -> Any:
    index = Tensor(ttype="coeff", data=np.array([[1, 0, 2], [0, 2, 1]], dtype=np.int32), dtype="int32")
    return tpul.scatter(_x(d, feeds, [4, 5]), index, _x(d, feeds, [2, 3]), 1)


@call("scatterND")
def _scatter_nd(d: Draw, feeds: list[Any], name: str) -> Any:
    index = Tensor(ttype="coeff", data=np.array([[1], [3]], dtype=np.uint32), dtype="uint32")
    return tpul.scatterND(_x(d, feeds, [4, 5]), index, _x(d, feeds, [2, 5]))


@call("mean_std_scale")
def _mean_std_scale(d: Draw, feeds: list[Any], name: str) -> Any:
    x = _x(d, feeds, [1, 3, *d.shape(2)], d.one("float32", "uint8"))
    return tpul.mean_std_scale(
        x,
        [1.0, 2.0, 4.0],
        [0.5, 1.0, 2.0],
        [1.0, d.scale()],
        [0, 3],
        odtype=d.one("float32", "int8"),
        round_mode=d.one(*ROUND),
    )


@call("rope")
def _rope(d: Draw, feeds: list[Any], name: str) -> Any:
    dtype = d.one("float32", "float16", "int8", "uint8")
    shape = [*d.shape(d.number(2, 4)), 2 * d.number(1, 3)]
    optimized = len(shape) == 4 and d.one(True, False)
    size = [shape[1 if optimized else len(shape) - 2], shape[-1]]
    weights = [d.coeff(size, dtype) for _ in range(2)]
    kept: dict[str, Any] = {"is_permute_optimize": optimized}
    for step in ("mul1", "mul2", "add"):
        kept |= {f"{step}_shift": d.number(-9, 2), f"{step}_round_mode": d.one(*ROUND)}
    return tpul.rope(_x(d, feeds, shape, dtype), *weights, **kept)


@call("yuv2rgb")
def _yuv2rgb(d: Draw, feeds: list[Any], name: str) -> Any:
    shape = [*d.shape(d.number(0, 2)), 3 * d.number(1, 3), 2 * d.number(1, 3)]
    formula, mode = d.one("_601_limited", "_601_full"), d.one("HalfAwayFromZero", "HalfUp", "HalfToEven")
    return tpul.yuv2rgb(_x(d, feeds, shape, "uint8"), d.number(0, 3), d.number(4, 5), "UINT8", formula, mode)


@call("nms")
def _nms(d: Draw, feeds: list[Any], name: str) -> Any:
    count, boxes, classes = d.shape(3)
    places = _x(d, feeds, [count, boxes, 4], low=0.25)
    scores = _x(d, feeds, [count, classes, boxes])
    return tpul.nms(places, scores, d.one("PYTORCH", "TENSORFLOW"), d.number(1, 3))


@tpul.define_custom("test.ratio")
def _ratio(x: Tensor, y: Tensor, factor: float, axes: list[int], both: bool) -> list[Tensor]:
    total = tpul.add(tpul.mul(x, factor), y)
    return [tpul.reduce(total, "ReduceMax", axes=axes, keep_dims=True), tpul.relu(total) if both else total]


@call("custom")
def _custom(d: Draw, feeds: list[Any], name: str) -> Any:
    shape = d.shape(3)
    operands = [_x(d, feeds, shape), d.coeff(shape)]
    params = {"factor": 0.5, "axes": [d.number(0, 2)], "both": d.one(True, False)}
    return tpul.custom(operands, "test.ratio", ["float32", "float32"], [f"first_{name}"], params)


def build(name: str, seed: int) -> Built:
    """Return a graph with one legal call of a function."""
    feeds: list[Any] = []
    with tpul.Graph("g") as graph:
        outcome = CALLS[name](Draw(f"{name}/{seed}"), feeds)
    results = list(outcome) if isinstance(outcome, list | tuple) else [outcome]
    return Built(graph, {str(t.name): values for t, values in feeds if t.name is not None}, results)
