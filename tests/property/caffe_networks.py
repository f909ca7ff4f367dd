"""Random Caffe networks as text and blobs, each top beside its formula in float64."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F

from quantizer.ir.formats.caffe_proto import net_parameter

Array = np.ndarray
LARGEST = 3000
"""Elements of a blob; a layer with a larger top is not taken."""
BOUND = 1e4


@dataclass
class Net:
    """A network under construction: its text, its blobs by layer, and the numbers of every top."""

    seed: int
    text: list[str] = field(default_factory=list)
    blobs: dict[str, list[torch.Tensor]] = field(default_factory=dict)
    values: dict[str, Array] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Start the source, and draw the input."""
        self.r = random.Random(self.seed)
        shape = (self.r.randint(1, 2), self.r.randint(1, 4), self.r.randint(3, 6), self.r.randint(3, 6))
        self.x = torch.from_numpy(self.drawn(*shape)).float()
        self.values["x"] = self.x.double().numpy()
        sizes = " ".join(f"dim: {size}" for size in shape)
        self.head = f'input: "x" input_shape {{ {sizes} }}'

    def drawn(self, *shape: int) -> Array:
        """Return numbers that float32 holds."""
        flat = [self.r.randint(-64, 64) / 32 for _ in range(int(np.prod(shape)))]
        return np.array(flat, np.float64).reshape(shape)

    def one(self, *choices: object) -> object:
        """Return one of *choices*."""
        return self.r.choice(choices)

    def bottom(self, *ranks: int) -> str | None:
        """Return the name of a top with one of these numbers of axes; None if there is none."""
        names = [name for name, values in self.values.items() if not ranks or values.ndim in ranks]
        return self.r.choice(names) if names else None

    def layer(
        self, kind: str, bottoms: list[str], tops: list[Array], says: str = "", blobs: tuple[Array, ...] = ()
    ) -> None:
        """Add a layer, unless a top is large, empty or not finite."""
        if any(not 0 < top.size <= LARGEST or not (np.abs(top) < BOUND).all() for top in tops):
            return
        name = f"l{len(self.text)}"
        names = [f"{name}_{place}" for place in range(len(tops))]
        ends = [f'bottom: "{bottom}"' for bottom in bottoms] + [f'top: "{top}"' for top in names]
        self.text.append(f'layer {{ name: "{name}" type: "{kind}" {" ".join(ends)} {says} }}')
        if blobs:
            self.blobs[name] = [torch.from_numpy(blob).float() for blob in blobs]
        self.values |= dict(zip(names, tops, strict=True))

    def files(self, folder: Path) -> tuple[Path, Path]:
        """Write the network and its blobs, a third of the networks with blobs of num, channels, height and width."""
        net, old = net_parameter()(), self.r.random() < 0.3
        for name, values in self.blobs.items():
            layer = net.layer.add(name=name)
            for value in values:
                blob = layer.blobs.add(data=value.reshape(-1).tolist())
                if old:
                    blob.num, blob.channels, blob.height, blob.width = (1,) * (4 - value.dim()) + tuple(value.shape)
                else:
                    blob.shape.dim.extend(value.shape)
        paths = folder / "net.prototxt", folder / "net.caffemodel"
        paths[0].write_text("\n".join([self.head, *self.text]), encoding="utf-8")
        paths[1].write_bytes(net.SerializeToString())
        return paths


Layer = Callable[[Net], None]


def convolution(net: Net) -> None:
    """A convolution or its transposition, with groups, and a bias or none."""
    bottom = net.bottom(4)
    assert bottom is not None
    x = net.values[bottom]
    channels, kernel = x.shape[1], (net.r.randint(1, 3), net.r.randint(1, 3))
    group = int(net.one(1, 1, channels))  # type: ignore[call-overload]
    per, stride, pad = net.r.randint(1, 2), net.r.randint(1, 2), net.r.randint(0, 1)
    back = net.r.random() < 0.3
    made = per * group
    weight = net.drawn(*((channels, per) if back else (made, channels // group)), *kernel)
    bias = net.drawn(made) if net.r.random() < 0.6 else None
    operands = [torch.from_numpy(values) if values is not None else None for values in (x, weight, bias)]
    sizes = list(zip(x.shape[2:], kernel, strict=True))
    if any((size - 1) * stride + k <= 2 * pad if back else size + 2 * pad < k for size, k in sizes):
        return
    y = F.conv_transpose2d(*operands, stride, pad, 0, group) if back else F.conv2d(*operands, stride, pad, 1, group)  # type: ignore[arg-type]
    says = f"num_output: {made} kernel_h: {kernel[0]} kernel_w: {kernel[1]} stride: {stride} pad: {pad} group: {group}"
    says += "" if bias is not None else " bias_term: false"
    blobs = (weight,) if bias is None else (weight, bias)
    net.layer(
        "Deconvolution" if back else "Convolution", [bottom], [y.numpy()], f"convolution_param {{ {says} }}", blobs
    )


def rows(net: Net) -> None:
    """An InnerProduct of all axes from one on, its weight transposed or not."""
    bottom = net.bottom()
    assert bottom is not None
    x = net.values[bottom]
    axis = net.r.randint(1, max(1, x.ndim - 1))
    if x.ndim < 2:
        return
    flat, turned = x.reshape(*x.shape[:axis], -1), net.r.random() < 0.4
    weight, bias = net.drawn(3, flat.shape[-1]), net.drawn(3)
    says = f"num_output: 3 axis: {net.one(axis, axis - x.ndim)}{' transpose: true' if turned else ''}"
    held = np.ascontiguousarray(weight.T) if turned else weight
    net.layer("InnerProduct", [bottom], [flat @ weight.T + bias], f"inner_product_param {{ {says} }}", (held, bias))


def pooling(net: Net) -> None:
    """Max or mean pooling; the last window may overhang, and padding may be counted."""
    bottom = net.bottom(4)
    assert bottom is not None
    x = net.values[bottom]
    mode, size, stride = str(net.one("MAX", "AVE")), net.r.randint(1, 3), net.r.randint(1, 3)
    pad, floor = net.r.randint(0, size - 1), net.r.random() < 0.3
    counts = []
    for length in x.shape[2:]:
        steps = (length + 2 * pad - size) / stride
        count = int(np.floor(steps) if floor else np.ceil(steps)) + 1
        counts.append(count - 1 if pad and (count - 1) * stride >= length + pad else count)
    y = np.zeros((*x.shape[:2], *counts))
    for i, j in np.ndindex(*counts):
        starts = [i * stride - pad, j * stride - pad]
        ends = [min(start + size, length + pad) for start, length in zip(starts, x.shape[2:], strict=True)]
        window = x[:, :, max(starts[0], 0) : ends[0], max(starts[1], 0) : ends[1]]
        if not window.size:
            return
        area = (ends[0] - starts[0]) * (ends[1] - starts[1])
        y[:, :, i, j] = window.max((2, 3)) if mode == "MAX" else window.sum((2, 3)) / area
    says = f"pool: {mode} kernel_size: {size} stride: {stride} pad: {pad}{' round_mode: FLOOR' if floor else ''}"
    net.layer("Pooling", [bottom], [y], f"pooling_param {{ {says} }}")


UNARY: dict[str, tuple[str, Callable[[Array], Array]]] = {
    "ReLU": ("relu_param { negative_slope: 0.25 }", lambda x: np.where(x > 0, x, 0.25 * x)),
    "Sigmoid": ("", lambda x: 1 / (1 + np.exp(-x))),
    "TanH": ("", np.tanh),
    "AbsVal": ("", np.abs),
    "BNLL": ("", lambda x: np.logaddexp(0, x)),
    "ELU": ("elu_param { alpha: 0.5 }", lambda x: np.where(x > 0, x, 0.5 * np.expm1(np.minimum(x, 0)))),
    "Power": ("power_param { power: 2 scale: -0.5 shift: 1 }", lambda x: (1 - 0.5 * x) ** 2),
    "Exp": ("exp_param { base: 2 scale: 0.125 shift: 1 }", lambda x: 2 ** (1 + 0.125 * x)),
    "Dropout": ("", lambda x: x),
}


def unary(net: Net) -> None:
    """A function of each element."""
    bottom, kind = net.bottom(), str(net.one(*UNARY))
    assert bottom is not None
    says, function = UNARY[kind]
    net.layer(kind, [bottom], [function(net.values[bottom])], says)


def factors(net: Net) -> None:
    """A Scale or a Bias along some axes: blobs, or another top."""
    bottom, kind = net.bottom(2, 3, 4), str(net.one("Scale", "Bias"))
    if bottom is None:
        return
    x = net.values[bottom]
    axis = net.r.randrange(x.ndim)
    count = net.r.randint(1, x.ndim - axis)
    shape = x.shape[axis : axis + count]
    others = [name for name, values in net.values.items() if values.shape == shape]
    second = net.r.choice(others) if others and net.r.random() < 0.7 else None
    held = net.drawn(*shape) if second is None else net.values[second]
    shift = net.drawn(*shape) if kind == "Scale" and net.r.random() < 0.5 else None
    along = [*shape, *[1] * (x.ndim - axis - count)]
    y = x * held.reshape(along) if kind == "Scale" else x + held.reshape(along)
    y = y if shift is None else y + shift.reshape(along)
    says = f"axis: {net.one(axis, axis - x.ndim)} num_axes: {count}{' bias_term: true' if shift is not None else ''}"
    blobs = tuple(blob for blob in (held if second is None else None, shift) if blob is not None)
    bottoms = [bottom] if second is None else [bottom, second]
    net.layer(kind, bottoms, [y], f"{kind.lower()}_param {{ {says} }}", blobs)


def together(net: Net) -> None:
    """Products, sums with coefficients or maxima of equal shapes; or a concatenation."""
    bottom = net.bottom()
    assert bottom is not None
    x = net.values[bottom]
    same = [name for name, values in net.values.items() if values.shape == x.shape]
    names = [bottom, *(net.r.choice(same) for _ in range(net.r.randint(1, 2)))]
    values = [net.values[name] for name in names]
    kind = str(net.one("PROD", "SUM", "MAX", "Concat"))
    if kind == "Concat":
        axis = net.r.randrange(x.ndim)
        net.layer("Concat", names, [np.concatenate(values, axis)], f"concat_param {{ axis: {axis} }}")
        return
    coefficients = [net.one(1, -1, 0.5) for _ in names] if kind == "SUM" else []
    made = {"PROD": lambda: np.prod(values, 0), "MAX": lambda: np.max(values, 0)}.get(
        kind,
        lambda: np.add.reduce([c * v for c, v in zip(coefficients, values, strict=True)]),  # type: ignore[operator]
    )()
    said = " ".join(f"coeff: {c}" for c in coefficients)
    net.layer("Eltwise", names, [made], f"eltwise_param {{ operation: {kind} {said} }}")


def moves(net: Net) -> None:
    """Slices, flat axes, another order of axes, copies, a sum over the last axes."""
    bottom = net.bottom(2, 3, 4)
    if bottom is None:
        return
    x = net.values[bottom]
    axis, kind = net.r.randrange(x.ndim), net.one("Slice", "Flatten", "Permute", "Tile", "Split", "Reduction")
    if kind == "Slice" and x.shape[axis] > 1:
        point = net.r.randint(1, x.shape[axis] - 1)
        parts = np.split(x, [point], axis)
        net.layer("Slice", [bottom], parts, f"slice_param {{ axis: {axis} slice_point: {point} }}")
    elif kind == "Flatten":
        end = net.r.randint(axis, x.ndim - 1)
        y = x.reshape(*x.shape[:axis], -1, *x.shape[end + 1 :])
        net.layer("Flatten", [bottom], [y], f"flatten_param {{ axis: {axis} end_axis: {end - x.ndim} }}")
    elif kind == "Permute":
        order = net.r.sample(range(x.ndim), x.ndim)
        said = " ".join(f"order: {place}" for place in order)
        net.layer("Permute", [bottom], [x.transpose(order)], f"permute_param {{ {said} }}")
    elif kind == "Tile":
        y = np.concatenate([x, x], axis)
        net.layer("Tile", [bottom], [y], f"tile_param {{ axis: {axis} tiles: 2 }}")
    elif kind == "Split":
        net.layer("Split", [bottom], [x, x])
    elif kind == "Reduction" and axis:
        y = 0.5 * np.abs(x).sum(tuple(range(axis, x.ndim)))
        net.layer("Reduction", [bottom], [y], f"reduction_param {{ operation: ASUM axis: {axis} coeff: 0.5 }}")


def normal(net: Net) -> None:
    """Statistics of a file over their count, or a softmax."""
    bottom = net.bottom(2, 3, 4)
    if bottom is None:
        return
    x = net.values[bottom]
    if net.r.random() < 0.5:
        axis = net.r.randrange(x.ndim)
        powers = np.exp(x - x.max(axis, keepdims=True))
        y = powers / powers.sum(axis, keepdims=True)
        net.layer("Softmax", [bottom], [y], f"softmax_param {{ axis: {axis} }}")
        return
    mean, variance, count = net.drawn(x.shape[1]), np.abs(net.drawn(x.shape[1])) + 0.5, np.array([4.0])
    along = [1, -1, *[1] * (x.ndim - 2)]
    y = (x - (mean / 4).reshape(along)) / np.sqrt((variance / 4).reshape(along) + 0.01)
    net.layer("BatchNorm", [bottom], [y], "batch_norm_param { eps: 0.01 }", (mean, variance, count))


LAYERS: list[Layer] = [convolution, rows, pooling, unary, factors, factors, together, moves, moves, normal]


def drawn_net(seed: int) -> Net:
    """Return a network of up to nine layers."""
    net = Net(seed)
    for _ in range(net.r.randint(3, 9)):
        net.r.choice(LAYERS)(net)
    return net
