"""Places between elements and around them: grids of samples, columns of windows, crops, spectra."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F  # noqa: N812 - the name that torch users know
from torch import Tensor

from quantizer.core.dtypes import DType
from quantizer.core.errors import UnsupportedError
from quantizer.ir.graph import container
from quantizer.runtime.onnx.kernels import axis_of, kernel, scalar, sized, whole

MODES = {"bilinear": "bilinear", "linear": "bilinear", "nearest": "nearest", "bicubic": "bicubic", "cubic": "bicubic"}
"""ONNX's names of opset 16 and 20 -> torch's."""


@kernel("GridSample")
def grid_sample(x: Tensor, grid: Tensor, *, align_corners: int, mode: str, padding_mode: str) -> Tensor:
    """Values at the places that a grid names, from -1 to 1 along each axis, the last axis first."""
    known = mode in MODES and padding_mode in ("zeros", "border", "reflection")
    if not known or x.dim() not in (4, 5) or (x.dim() == 5 and MODES[mode] == "bicubic"):
        raise UnsupportedError(f"GridSample of {x.dim()} axes, mode={mode!r}, padding_mode={padding_mode!r}.")
    if grid.dim() != x.dim() or grid.shape[-1] != x.dim() - 2 or grid.shape[0] != x.shape[0] or grid.dtype != x.dtype:
        raise UnsupportedError(f"GridSample of {list(x.shape)} at {grid.dtype} {list(grid.shape)}.")
    return F.grid_sample(x, grid, MODES[mode], padding_mode, align_corners=bool(align_corners))


@kernel("Col2Im")
def col2im(
    x: Tensor, image: Tensor, block: Tensor, *, dilations: Sequence[int] | None = None,
    pads: Sequence[int] | None = None, strides: Sequence[int] | None = None,
) -> Tensor:  # fmt: skip
    """Windows back in their image, added where they overlap: [n, c * places, windows] -> [n, c, image]."""
    sizes, window = whole(image), whole(block)
    rank = len(sizes)
    steps, holes = list(strides or [1] * rank), list(dilations or [1] * rank)
    around = list(pads or [0] * (2 * rank))
    places = math.prod(window)
    if x.dim() != 3 or not {len(window), len(steps), len(holes), len(around) // 2} == {rank} or min(window) < 1:
        raise UnsupportedError(f"Col2Im of {list(x.shape)} in blocks of {window}.")
    wide = [size + around[i] + around[i + rank] for i, size in enumerate(sizes)]
    counts = [(w - h * (k - 1) - 1) // s + 1 for w, h, k, s in zip(wide, holes, window, steps, strict=True)]
    if x.shape[1] % places or min(counts) < 1 or math.prod(counts) != x.shape[2]:
        raise UnsupportedError(f"Col2Im of {list(x.shape)} in blocks of {window}: {counts} windows do not fit.")
    y = x.new_zeros(sized("Col2Im", (x.shape[0], x.shape[1] // places, *wide), x.dtype))
    parts = x.reshape(x.shape[0], x.shape[1] // places, places, *counts)
    for place in range(places):
        inner, index = place, list[slice]()
        for i in reversed(range(rank)):
            start = inner % window[i] * holes[i]
            index.insert(0, slice(start, start + (counts[i] - 1) * steps[i] + 1, steps[i]))
            inner //= window[i]
        y[(slice(None), slice(None), *index)] += parts[:, :, place]
    return y[(slice(None), slice(None), *(slice(around[i], around[i] + size) for i, size in enumerate(sizes)))].clone()


@kernel("CenterCropPad")
def center_crop_pad(x: Tensor, shape: Tensor, *, axes: Sequence[int] | None = None) -> Tensor:
    """The middle of each axis, or zeros around it; of an odd rest the larger part is behind."""
    wanted = whole(shape)
    along = [axis_of("CenterCropPad", axis, x.dim()) for axis in (range(x.dim()) if axes is None else axes)]
    if len(wanted) != len(along):
        raise UnsupportedError(f"CenterCropPad: {len(wanted)} sizes for axes {along}.")
    sizes = {**dict(enumerate(x.shape)), **dict(zip(along, wanted, strict=True))}
    y = x.new_zeros(sized("CenterCropPad", [sizes[i] for i in range(x.dim())], x.dtype))
    into, out = [], []
    for i, size in enumerate(x.shape):
        low, high = max(0, sizes[i] - size) // 2, max(0, size - sizes[i]) // 2
        count = min(size, sizes[i])
        into.append(slice(low, low + count))
        out.append(slice(high, high + count))
    y[tuple(into)] = x[tuple(out)]
    return y


@kernel("EyeLike")
def eye_like(x: Tensor, *, dtype: DType | None = None, k: int = 0) -> Tensor:
    """Ones on the k-th diagonal, zeros elsewhere."""
    if x.dim() != 2:
        raise UnsupportedError(f"EyeLike of shape {list(x.shape)}: must be a matrix.")
    kind = container(dtype) if isinstance(dtype, DType) else x.dtype
    rows, columns = torch.arange(x.shape[0]).reshape(-1, 1), torch.arange(x.shape[1])
    return torch.eq(columns - rows, k).to(kind)


@kernel("Det")
def det(x: Tensor) -> Tensor:
    """Determinant of each matrix."""
    found: Tensor = torch.linalg.det(x)
    return found


@kernel("DFT")
def dft(
    x: Tensor, length: Tensor | None = None, place: Tensor | None = None, *, axis: int | None = None, inverse: int = 0,
    onesided: int = 0, since: int,
) -> Tensor:  # fmt: skip
    """Discrete Fourier transform along one axis; the last axis holds a number, or its real and imaginary part.

    By numpy, whose transform is one on every processor; torch's is the processor's library's.
    """
    default = 1 if since < 20 else -2
    along = axis_of("DFT", int(scalar(place, default if axis is None else axis)), x.dim())
    if x.shape[-1] not in (1, 2) or along == x.dim() - 1 or (onesided and not inverse and x.shape[-1] != 1):
        raise UnsupportedError(f"DFT of shape {list(x.shape)} along axis {along}, onesided={onesided}.")
    count = int(scalar(length, 2 * (x.shape[along] - 1) if inverse and onesided else x.shape[along]))
    sized("DFT", (*x.shape[:along], count, *x.shape[along + 1 :]), torch.complex64)
    wide = x if x.dtype in (torch.float32, torch.float64) else x.float()
    numbers: Any = torch.view_as_complex(wide.contiguous()).numpy() if x.shape[-1] == 2 else wide[..., 0].numpy()
    if inverse and onesided:
        found: Any = np.fft.irfft(numbers, count, axis=along)
    elif onesided:
        found = np.fft.rfft(numbers, count, axis=along)
    else:
        found = (np.fft.ifft if inverse else np.fft.fft)(numbers, count, axis=along)
    made = torch.from_numpy(np.ascontiguousarray(found))
    return (torch.view_as_real(made) if made.is_complex() else made.unsqueeze(-1)).to(x.dtype)
