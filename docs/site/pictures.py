"""The pictures of docs/mathematics.md, drawn with the functions that they explain: python docs/site/pictures.py writes them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np
import torch

from quantizer.conformance.bounds.monotone import monotone
from quantizer.core.case import TilePlan
from quantizer.core.library import load_library
from quantizer.numerics import round_tensor
from quantizer.numerics.quantize import dequantize, quantize
from quantizer.numerics.rules import weight_params
from quantizer.tiling.windows import tiles

FOLDER = Path(__file__).parents[1] / "pictures"
STYLE = """<style>
text { font: 13px system-ui, sans-serif; fill: #1f2328 }
.soft { font-size: 12px; fill: #59636e }
line { stroke: #59636e }
.paper { fill: #fff }
.right { fill: #1a7f37 }
.left { fill: #0969da }
.cell { fill: #f6f8fa; stroke: #d0d7de }
.pad { fill: #fff; stroke: #d0d7de; stroke-dasharray: 3 3 }
.tile { fill: #dafbe1; stroke: #1a7f37 }
.halo { fill: #fff8c5; stroke: #9a6700 }
</style>"""
MODES = ("half_even", "half_up", "half_down", "half_away", "half_toward_zero")


def svg(width: int, height: int, label: str, *parts: str) -> str:
    """Return a picture on white paper, so that it can be read on dark pages too."""
    head = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" role="img" aria-label="{label}">'
    return "\n".join(
        [head, STYLE, f'<rect class="paper" width="{width}" height="{height}" rx="8"/>', *parts, "</svg>", ""]
    )


def text(x: float, y: float, said: object, kind: str = "", anchor: str = "start") -> str:
    """Return one line of text."""
    return f'<text x="{x:g}" y="{y:g}" class="{kind}" text-anchor="{anchor}">{said}</text>'


def tie() -> str:
    """Return where each mode sends ties: what `round_tensor` gives for -2.5 to 2.5."""
    ties = torch.arange(-2.5, 3.0, 1.0, dtype=torch.float64)
    left, step, top, row = 150, 88, 64, 30
    parts = [text(20, 30, "Where a tie goes: the code that each rounding mode gives")]
    parts += [text(left + step * i, top, f"{value:g}", "soft", "middle") for i, value in enumerate(ties.tolist())]
    for number, mode in enumerate(MODES):
        y = top + row * (number + 1)
        parts.append(text(20, y, mode))
        for i, (value, code) in enumerate(zip(ties.tolist(), round_tensor(ties, mode).tolist(), strict=True)):
            arrow, kind = ("→", "right") if code > value else ("←", "left")
            parts.append(text(left + step * i, y, f"{arrow} {int(code)}", kind, "middle"))
    return svg(680, top + row * len(MODES) + 22, "Six ties under five rounding modes", *parts)


def halo() -> str:
    """Return the input that one tile of a convolution needs: the window that `tiles` gives for conv1d."""
    spec = load_library().spec("conv1d")
    attrs = {"stride": (1,), "padding": (1, 1), "dilation": (1,), "groups": 1}
    cut = tiles(spec, {"x": (1, 1, 12), "weight": (1, 1, 3)}, attrs, TilePlan({"ow": 4}))
    size, left = 44, 104
    parts = [text(20, 30, "conv1d, kernel 3, padding 1, tiles of 4 elements: what each tile needs of the input")]
    for number, tile in enumerate(cut):
        y = 56 + 112 * number
        (start, stop), (first, last) = tile.inputs["x"][2], tile.output[2]
        parts += [text(20, y + 20, "input"), text(20, y + 64, "output")]
        for i in range(-1, 13):
            needed = start <= i < stop
            own = needed and first <= i < last
            kind = "tile" if own else "halo" if needed else "cell" if 0 <= i < 12 else "pad"
            parts.append(
                f'<rect class="{kind}" x="{left + size * (i + 1)}" y="{y}" width="{size - 4}" height="30" rx="4"/>'
            )
            parts.append(text(left + size * (i + 1) + 20, y + 20, i if 0 <= i < 12 else 0, "soft", "middle"))
        for i in range(12):
            kind = "tile" if first <= i < last else "cell"
            parts.append(
                f'<rect class="{kind}" x="{left + size * (i + 1)}" y="{y + 44}" width="{size - 4}" height="30" rx="4"/>'
            )
            parts.append(text(left + size * (i + 1) + 20, y + 64, i, "soft", "middle"))
        padding = tile.attrs["padding"]
        parts.append(text(left, y + 92, f"input {start} to {stop - 1}, padding {list(padding)}", "soft"))
    return svg(740, 56 + 112 * len(cut), "Three tiles of a convolution with their halos", *parts)


def enclosure() -> str:
    """Return how half a step of the input becomes an interval of output codes: a sigmoid of 4-bit codes."""
    scale, out = 0.5, 1 / 15
    codes = torch.arange(-8, 8, dtype=torch.float64)
    enclosed = monotone(lambda x: 1 / (1 + np.exp(-x)), codes.numpy() * scale, np.full(16, scale / 2))
    low, high = (round_tensor(torch.from_numpy(end / out), "half_even") for end in (enclosed.lo, enclosed.hi))
    exact = round_tensor(torch.sigmoid(codes * scale) / out, "half_even")
    left, step, bottom, unit = 70, 40, 300, 16
    parts = [
        text(20, 30, "sigmoid, codes of 4 bits: green from the code itself, yellow from half a step to either side")
    ]
    for value in range(0, 16, 3):
        parts.append(
            f'<line x1="{left - 10}" x2="{left + step * 16}" y1="{bottom - unit * value}" y2="{bottom - unit * value}" opacity=".2"/>'
        )
        parts.append(text(left - 16, bottom - unit * value + 4, value, "soft", "end"))
    for i, code in enumerate(codes.tolist()):
        x = left + step * i
        span = high[i].item() - low[i].item() + 1
        parts.append(
            f'<rect class="halo" x="{x}" y="{bottom - unit * (high[i].item() + 0.5):g}" width="26" height="{unit * span:g}" rx="4"/>'
        )
        parts.append(
            f'<rect class="tile" x="{x + 5}" y="{bottom - unit * (exact[i].item() + 0.5):g}" width="16" height="{unit}" rx="3"/>'
        )
        parts.append(text(x + 13, bottom + 26, f"{code:g}", "soft", "middle"))
    parts.append(text(left, bottom + 48, "code of the input; upwards the code of the output", "soft"))
    return svg(740, bottom + 64, "Allowed output codes of a sigmoid per input code, for two checks", *parts)


def blocks() -> str:
    """Return what a scale for each block does to small weights beside large ones: `weight_params` on w4g4 and w4."""
    library = load_library()
    weights = torch.tensor([[0.95, -0.6, 0.35, -0.8, 0.05, -0.02, 0.035, 0.06, 0.3, -0.25, 0.12, -0.2]])
    platform = library.platform("ideal")
    left, step, middle, unit = 120, 46, 150, 90
    parts = [
        text(
            20,
            30,
            "12 weights of one channel as codes of 4 bits: one scale, or one for each block of 4 (with the largest error)",
        )
    ]
    for i, value in enumerate(weights[0].tolist()):
        height = max(abs(value) * unit, 1)
        top = middle - height if value > 0 else middle
        parts.append(f'<rect class="tile" x="{left + step * i}" y="{top:g}" width="30" height="{height:g}"/>')
    parts.append(f'<line x1="{left - 10}" x2="{left + step * 12}" y1="{middle}" y2="{middle}"/>')
    parts.append(text(20, middle + 4, "weight"))
    parts += [text(left + step * i + 15, 258, f"{v:g}", "soft", "middle") for i, v in enumerate(weights[0].tolist())]
    for row, (name, said) in enumerate((("w4", "one scale"), ("w4g4", "blocks of 4"))):
        part, y = library.schemes[f"{name}a8"].weight, 262 + 76 * (row + 1)
        params = weight_params(weights, part, platform.parameters, 0, block_axis=1)
        codes = quantize(weights, params, platform.quantizer)
        lost = (dequantize(codes, params) - weights).abs()[0]
        spans = [(0, 0, 12)] if params.blocks is None else params.blocks.spans(12)
        for block, start, stop in spans:
            scale = params.scale.reshape(-1)[block].item()
            x, width = left + step * start - 4, step * (stop - start) - 8
            parts.append(f'<rect class="cell" x="{x}" y="{y - 42}" width="{width}" height="52" rx="4"/>')
            parts.append(text(x + 8, y - 26, f"scale {scale:.4f}, error {lost[start:stop].max().item():.3f}", "soft"))
        parts.append(text(20, y, said))
        parts += [text(left + step * i + 15, y, int(c), "", "middle") for i, c in enumerate(codes[0].tolist())]
    return svg(700, 432, "Twelve weights as codes under one scale and under three scales", *parts)


PICTURES: Mapping[str, Callable[[], str]] = {"tie": tie, "halo": halo, "enclosure": enclosure, "blocks": blocks}

if __name__ == "__main__":
    FOLDER.mkdir(exist_ok=True)
    for name, draw in PICTURES.items():
        (FOLDER / f"{name}.svg").write_text(draw(), encoding="utf-8")
