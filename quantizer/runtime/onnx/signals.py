"""Spectra: Fourier transforms of signals and of frames, window functions, and mel bands."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import torch
from torch import Tensor

from quantizer.core.dtypes import DType
from quantizer.core.errors import UnsupportedError
from quantizer.ir.graph import Node, container
from quantizer.runtime.onnx.kernels import axis_of, kernel, scalar, sized


@kernel("DFT")
def dft(
    x: Tensor,
    length: Tensor | None = None,
    place: Tensor | None = None,
    *,
    axis: int | None = None,
    inverse: int = 0,
    onesided: int = 0,
    since: int,
) -> Tensor:
    """Return the Fourier transform along one axis; the last axis holds a real number, or real and imaginary part.

    Uses numpy, whose transform is the same on every processor; torch's depends on the processor's library.
    """
    default = 1 if since < 20 else -2
    along = axis_of("DFT", int(scalar(place, default if axis is None else axis)), x.dim())
    if x.shape[-1] not in (1, 2) or along == x.dim() - 1 or (onesided and not inverse and x.shape[-1] != 1):
        raise UnsupportedError(
            f"DFT of shape {list(x.shape)} along axis {along}, {onesided=}, {inverse=}: the last axis must have 1 or 2 "
            "elements and not be transformed; 1 for a one-sided transform."
        )
    # a one-sided spectrum of n / 2 + 1 places belongs to an even length n
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


COSINES = {"HannWindow": (0.5, -0.5), "HammingWindow": (25 / 46, -21 / 46), "BlackmanWindow": (0.42, -0.5, 0.08)}
"""Window -> the coefficients of its cosines of 0, 1 and 2 periods."""


@kernel(*COSINES)
def window(size: Tensor, *, op: Node, periodic: int, output_datatype: DType | int = 1) -> Tensor:
    """Return a sum of cosines over one turn; if periodic, it ends one step before the turn is complete."""
    count = int(scalar(size, 0))
    sized(op.op, (count,), torch.float64)
    steps = count if periodic else count - 1
    places = torch.arange(count, dtype=torch.float64) * (2 * math.pi / steps if steps else math.nan)
    terms = (factor * torch.cos(turns * places) for turns, factor in enumerate(COSINES[op.op]))
    kind = container(output_datatype) if isinstance(output_datatype, DType) else torch.float32
    return sum(terms, torch.zeros(count, dtype=torch.float64)).to(kind)


@kernel("STFT")
def stft(
    x: Tensor, step: Tensor, window: Tensor | None = None, frame: Tensor | None = None, *, onesided: int
) -> Tensor:
    """Return the Fourier transforms of frames of a signal, times the window; a frame begins every `step` places."""
    given = None if window is None else window.numel()
    length = int(scalar(frame, x.shape[1] if given is None and x.dim() > 1 else given))
    hop = int(scalar(step, 0))
    if x.dim() != 3 or not 0 < length <= x.shape[1] or hop < 1 or given not in (None, length):
        raise UnsupportedError(
            f"STFT of {list(x.shape)} in frames of {length} every {hop}, a window of {given}: must have 3 axes, and "
            "frames no longer than the signal, one element apart or more, as long as the window."
        )
    # frames of the shape [batch, frames, length, 1 or 2]
    frames = x.unfold(1, length, hop).movedim(-1, 2)
    weighted = frames if window is None else frames * window.reshape(-1, 1)
    return dft(weighted.to(x.dtype), axis=2, onesided=onesided, since=17)


MEL = 2595.0
"""The difference in mel for a factor of ten in 1 + frequency / 700 Hz."""


@kernel("MelWeightMatrix")
def mel_weight_matrix(
    bands: Tensor, length: Tensor, rate: Tensor, low: Tensor, high: Tensor, *, output_datatype: DType | int = 1
) -> Tensor:
    """Return triangles over the places of a spectrum, a column for each; their corners are evenly spaced in mel."""
    count, size, samples = (int(scalar(value, 0)) for value in (bands, length, rate))
    edges = [MEL * math.log10(1 + float(scalar(value, 0)) / 700) for value in (low, high)]
    places = sized("MelWeightMatrix", (size // 2 + 1, count), torch.float64)
    if samples < 1 or not edges[0] <= edges[1]:
        raise UnsupportedError(f"MelWeightMatrix of {samples} samples a second, edges at {edges} mel: must rise.")
    mels = [edges[0] + i * (edges[1] - edges[0]) / (count + 2) for i in range(count + 2)]
    corners = [math.floor((size + 1) * 700 * (10 ** (mel / MEL) - 1) / samples) for mel in mels]
    if corners and not 0 <= min(corners) <= max(corners) < places[0]:
        raise UnsupportedError(f"MelWeightMatrix: corners {corners}: must lie in a spectrum of {places[0]} places.")
    at = torch.arange(places[0], dtype=torch.float64)
    made = torch.zeros(places, dtype=torch.float64)
    for i, (first, middle, last) in enumerate(zip(corners, corners[1:], corners[2:], strict=False)):
        # two corners in one place make a side without width
        rising = (at - first) / (middle - first) if middle > first else torch.ones_like(at)
        falling = (last - at) / (last - middle) if last > middle else torch.zeros_like(at)
        made[:, i] = torch.where((at >= first) & (at <= middle), rising, made[:, i])
        made[:, i] = torch.where((at >= middle) & (at < last), falling, made[:, i])
    return made.to(container(output_datatype) if isinstance(output_datatype, DType) else torch.float32)
