"""Small charts as SVG text; a table next to each shows the same numbers."""

from __future__ import annotations

import math
from collections.abc import Sequence

from markupsafe import Markup

BINS = 20
_WIDTH, _HEIGHT = 176, 44


def histogram(ratios: Sequence[float]) -> Markup:
    """Return how many *ratios* fall into each twentieth of [0, 1], with those beyond 1 in a separate bar."""
    counts = [0] * (BINS + 1)
    for ratio in ratios:
        counts[BINS if ratio > 1 else min(int(ratio * BINS), BINS - 1)] += 1
    tallest = max(counts) or 1
    step = _WIDTH / (BINS + 2)
    path, beyond = "", ""
    for place, count in enumerate(counts):
        if count:
            height = max(round(_HEIGHT * count / tallest), 2)
            # the bar of ratios above 1 stands apart from the others
            x = f"{step * (place + (1 if place == BINS else 0)):g}"
            bar = f"M{x} {_HEIGHT}v-{height}h{step - 1:g}v{height}"
            path, beyond = (path, bar) if place == BINS else (path + bar, beyond)
    bars = f'<path class="bars" d="{path}"/>' if path else ""
    bars += f'<path class="bars bad" d="{beyond}"/>' if beyond else ""
    limit = f'<line x1="{step * BINS:g}" y1="0" x2="{step * BINS:g}" y2="{_HEIGHT}"/>'
    return _svg("ratios from 0 to 1, and beyond", _WIDTH, _HEIGHT, bars + limit)


def scatter(points: Sequence[tuple[int, float]]) -> Markup:
    """Return SQNR in dB, upwards to 120, against activation bits from 4 to 16."""
    places = set()
    for bits, decibel in points:
        x = 8 + (_WIDTH - 16) * (min(max(bits, 4), 16) - 4) / 12
        y = _HEIGHT - 4 - (_HEIGHT - 8) * min(max(decibel, 0.0), 120.0) / 120
        # a line of length 0 draws a dot; equal points are drawn once
        places.add(f"M{x:.4g} {y:.3g}h0")
    dots = f'<path class="dots" d="{"".join(sorted(places))}"/>'
    axis = f'<line x1="0" y1="{_HEIGHT - 1}" x2="{_WIDTH}" y2="{_HEIGHT - 1}"/>'
    return _svg("SQNR in dB against activation bits", _WIDTH, _HEIGHT, dots + axis)


def sparkline(values: Sequence[float | None]) -> Markup:
    """Draw *values* from the oldest to the newest as a line with gaps at missing or infinite values."""
    known = [value for value in values if value is not None and math.isfinite(value)]
    if not known:
        return Markup("")
    low, high = min(known), max(known)
    step = _WIDTH / max(len(values) - 1, 1)
    path, pen = [], "M"
    for place, value in enumerate(values):
        if value is None or not math.isfinite(value):
            pen = "M"
            continue
        share = 0.5 if high == low else (value - low) / (high - low)
        path.append(f"{pen}{place * step:.1f} {_HEIGHT / 2 - 2 - (_HEIGHT / 2 - 4) * share:.1f}")
        pen = "L"
    line = f'<path d="{"".join(path)}"/>'
    # a path of one point draws nothing
    if len(known) == 1:
        line = f'<circle cx="{_WIDTH / 2}" cy="{_HEIGHT / 4}" r="2"/>'
    return _svg("oldest to newest", _WIDTH, _HEIGHT // 2, line)


def _svg(label: str, width: int, height: int, body: str) -> Markup:
    return Markup(  # noqa: S704 - numbers and words of this module alone
        f'<svg role="img" aria-label="{label}" viewBox="0 0 {width} {height}" width="{width}" height="{height}">'
        f"{body}</svg>"
    )
