"""Random nodes of operators that few models have: windows of signals, regions, places of maxima, deformed windows."""

from __future__ import annotations

import numpy as np
from node_values import Draw, Made, draws, whole


@draws("GlobalLpPool")
def global_lp_pool(d: Draw, op: str) -> Made:
    """A norm over everything but batch and channel."""
    attrs = {"p": d.whole(1, 3)} if d.chance(0.7) else {}
    return Made(op, d.one(11, 22), (d.values(d.shape(3, 5, 4)),), attrs)


@draws("Scatter")
def scatter(d: Draw, op: str) -> Made:
    """The old name of ScatterElements."""
    shape = d.shape(1, 3)
    axis = d.whole(-len(shape), len(shape) - 1)
    count = d.whole(1, shape[axis])
    places = tuple(count if i == axis % len(shape) else size for i, size in enumerate(shape))
    line = d.r.sample(range(shape[axis]), count)
    along = np.array(line, np.int64).reshape([-1 if i == axis % len(shape) else 1 for i in range(len(shape))])
    return Made(
        op, d.one(9, 10), (d.values(shape), np.broadcast_to(along, places).copy(), d.values(places)), {"axis": axis}
    )


@draws("MaxRoiPool")
def max_roi_pool(d: Draw, op: str) -> Made:
    """The largest of each bin of regions."""
    n, c, h, w = (d.whole(1, 3), d.whole(1, 3), d.whole(3, 8), d.whole(3, 8))
    regions = [
        [d.whole(0, n - 1), *(x := sorted(d.whole(0, w - 1) for _ in range(2)))[:1], (y := sorted(d.whole(0, h - 1) for _ in range(2)))[0], x[1], y[1]]
        for _ in range(d.whole(1, 3))
    ]  # fmt: skip
    attrs: dict[str, object] = {"pooled_shape": [d.whole(1, 3), d.whole(1, 3)]}
    if d.chance(0.5):
        attrs["spatial_scale"] = d.one(1.0, 0.5)
    return Made(op, d.one(11, 22), (d.values((n, c, h, w)), np.array(regions, np.float32)), attrs)


@draws("MaxUnpool")
def max_unpool(d: Draw, op: str) -> Made:
    """Values at the places of the maxima from which they came."""
    n, c, h, w = (d.whole(1, 2), d.whole(1, 2), d.whole(1, 3), d.whole(1, 3))
    kernel, strides = [d.whole(1, 3), d.whole(1, 3)], [d.whole(1, 3), d.whole(1, 3)]
    sizes = [(size - 1) * step + k for size, step, k in zip((h, w), strides, kernel, strict=True)]
    area = sizes[0] * sizes[1]
    places = np.array(
        [
            [plane * area + place for place in d.r.sample(range(area), h * w)]
            if area >= h * w
            else [plane * area] * (h * w)
            for plane in range(n * c)
        ],
        np.int64,
    ).reshape(n, c, h, w)
    operands = [d.values((n, c, h, w)), places]
    if d.chance(0.4):
        operands.append(whole(n, c, *(size + d.whole(0, 2) for size in sizes)))
    return Made(op, d.one(9, 11, 22), tuple(operands), {"kernel_shape": kernel, "strides": strides})


@draws("MelWeightMatrix")
def mel_weight_matrix(d: Draw, op: str) -> Made:
    """Triangles of a mel spectrogram; every operand is a scalar."""
    rate = d.one(8000, 16000)
    low = d.r.uniform(0, 500)
    numbers = (d.whole(2, 10), d.one(64, 128, 256), rate)
    kind = d.one(np.int32, np.int64)
    whole_numbers = tuple(np.array(number, kind) for number in numbers)
    ends = (np.float32(low), np.float32(d.r.uniform(low + 1000, 4000)))
    return Made(op, 17, (*whole_numbers, *(np.array(end) for end in ends)))


@draws("STFT")
def stft(d: Draw, op: str) -> Made:
    """Transforms of overlapping frames."""
    length = d.whole(8, 24)
    frame, step = d.whole(2, 8), d.whole(1, 5)
    signal = d.values((d.whole(1, 2), length, 1))
    window = d.values((frame,)) if d.chance(0.5) else None
    held = np.array(frame, np.int64) if window is None or d.chance(0.5) else None
    return Made(op, 17, (signal, np.array(step, np.int64), window, held), {"onesided": d.whole(0, 1)})


@draws("DeformConv")
def deform_conv(d: Draw, op: str) -> Made:
    """A deformable convolution: sampling positions are moved by fractions."""
    n, c, h, w = d.whole(1, 2), d.one(1, 2, 4), d.whole(3, 6), d.whole(3, 6)
    kernel = (d.whole(1, 3), d.whole(1, 3))
    group = d.one(1, c)
    moved = d.one(1, c)
    outputs = group * d.whole(1, 2)
    strides, pads = [d.whole(1, 2), d.whole(1, 2)], [d.whole(0, 1) for _ in range(4)]
    after = [(s + pads[i] + pads[i + 2] - kernel[i]) // strides[i] + 1 for i, s in enumerate((h, w))]
    count = kernel[0] * kernel[1]
    operands = [
        d.values((n, c, h, w)),
        d.values((outputs, c // group, *kernel)),
        d.values((n, 2 * moved * count, *after)),
    ]
    operands.append(d.values((outputs,)) if d.chance(0.5) else None)
    if d.chance(0.5):
        operands.append(d.values((n, moved * count, *after)))
    attrs = {"strides": strides, "pads": pads, "group": group, "offset_group": moved, "kernel_shape": list(kernel)}
    return Made(op, d.one(19, 22), tuple(operands), attrs)


@draws("BitCast")
def bit_cast(d: Draw, op: str) -> Made:
    """The same bits as another type of as many."""
    pairs = ((np.float32, 6), (np.float32, 12), (np.int32, 1), (np.float16, 5), (np.int8, 2), (np.int64, 11))
    kind, to = d.r.choice(pairs)
    return Made(op, 26, (d.values(d.shape(), kind),), {"to": to})
