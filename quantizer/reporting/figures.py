"""Formats numbers and texts for reports: rounding never crosses 1, control characters are removed."""

from __future__ import annotations

import math
import re
import textwrap
from decimal import ROUND_CEILING, ROUND_FLOOR, Decimal

NOTHING = "-"
"""The text of an empty cell."""

_HUNDREDTH = Decimal("0.01")
_UNBROKEN = "\u00a0"


def ratio_text(ratio: float) -> str:
    """Write a ratio with two decimals at most, rounded away from 1, so that 1.0004 is not shown as allowed."""
    if not math.isfinite(ratio):
        return "inf"
    if 0 < ratio < 0.01:
        return "<0.01"
    if ratio > 99_999:
        return f"{ratio:.1e}"
    if ratio > 99:
        return f"{math.ceil(ratio)}"
    # in decimals, the digits that are printed: rounding a binary number could cross 1
    side = ROUND_CEILING if ratio > 1 else ROUND_FLOOR
    return str(Decimal(repr(float(ratio))).quantize(_HUNDREDTH, rounding=side))


def ratio_texts(*ratios: float) -> tuple[str, ...]:
    """Write ratios with the fewest digits, at least three, that distinguish them from each other and from 1."""
    wanted = len({*ratios, 1.0})
    for digits in range(3, 18):
        texts = tuple(f"{ratio:.{digits}g}" for ratio in ratios)
        if len({*texts, "1"}) == wanted:
            return texts
    return tuple(repr(ratio) for ratio in ratios)


def factor_text(factor: float) -> str:
    """Write the factor of a growth. A growth too small for three digits reads `x1+`."""
    if not math.isfinite(factor):
        return "x inf"
    text = f"x{factor:.3g}"
    return "x1+" if text == "x1" and factor > 1 else text


def lsb_text(error: float | None) -> str:
    """Write an error in steps of the output with up to three decimals; a dash where it was not measured."""
    return NOTHING if error is None else f"{error:.3f}".rstrip("0").rstrip(".") if error < 1e6 else f"{error:.2e}"


def share_text(share: float) -> str:
    """Write a fraction as a percentage with one decimal. A small positive fraction is never shown as 0."""
    if share <= 0:
        return NOTHING
    return "<0.1%" if share < 0.001 else f"{100 * share:.1f}%"


def count_text(count: int) -> str:
    """Write a count with separators; 0 is a dash, so that other counts stand out."""
    return f"{count:,}" if count else NOTHING


def counted(count: int, noun: str) -> str:
    """Write `1 case`, `1,440 cases`."""
    return f"{count:,} {noun}" if count == 1 else f"{count:,} {noun}s"


def printable(text: str) -> str:
    """Return *text* on one line, every control and invisible character escaped."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode("ascii") for c in text)


def shortened(text: str, width: int, *, middle: bool = False) -> str:
    """Cut *text* to *width* characters and mark the cut with two dots, at its end or in its middle."""
    if len(text) <= width:
        return text
    kept = max(width - 2, 0)
    tail = kept // 2 if middle else 0
    return text[: kept - tail] + ".."[:width] + (text[len(text) - tail :] if tail else "")


def wrapped(text: str, width: int) -> list[str]:
    """Break a list in words after its commas, into lines of at most *width* characters.

    All except the first are indented.
    """
    # spaces that follow no comma, semicolon or colon cannot break while the text is wrapped
    clauses = re.sub(r"(?<![,;:]) ", _UNBROKEN, text)
    lines = textwrap.wrap(clauses, width, subsequent_indent="  ", break_long_words=False, break_on_hyphens=False)
    return [line.replace(_UNBROKEN, " ") for line in lines]


def figure(value: float | str) -> str:
    """Write a count or a size in full; a text is unchanged, and an empty one becomes a dash."""
    if isinstance(value, str):
        return value or NOTHING
    return f"{value:,}" if isinstance(value, int) else f"{value:.4g}"
