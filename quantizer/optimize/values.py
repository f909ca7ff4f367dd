"""Parsers of cfg values; their errors say what is legal."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from quantizer.calibration.strategies import LEGAL as STRATEGIES
from quantizer.calibration.strategies import parse_strategy

Value = bool | int | float | str | tuple[object, ...]
WORDS = {"true": True, "false": False}
METRIC = re.compile(r"(\w+)(?:\(([^()]*)\))?")


@dataclass(frozen=True)
class Kind:
    """How one value is read, and its legal values in words."""

    parse: Callable[[str], Value]
    legal: str


def anything(legal: str) -> Kind:
    """Return the kind for a text that is used unchanged."""
    return Kind(lambda text: text, legal)


def boolean() -> Kind:
    """Return the kind of true and false, in any case."""

    def parse(text: str) -> Value:
        if text.lower() not in WORDS:
            raise ValueError(text)
        return WORDS[text.lower()]

    return Kind(parse, "true or false")


def integer(least: int, most: int | None = None, *, empty: bool = False) -> Kind:
    """Return the kind of integers in [least, most]; with *empty*, an empty text is legal too."""

    def parse(text: str) -> Value:
        if empty and not text:
            return text
        # 18 digits fit int64
        if not re.fullmatch(r"[+-]?\d{1,18}", text) or int(text) < least or (most is not None and int(text) > most):
            raise ValueError(text)
        return int(text)

    span = f"an integer from {least} to {most}" if most is not None else f"an integer of at least {least}"
    return Kind(parse, span + (", or empty" if empty else ""))


def real(least: float, most: float = math.inf) -> Kind:
    """Return the kind of numbers in [least, most]."""

    def parse(text: str) -> Value:
        if not re.fullmatch(r"[+-]?(\d+\.?\d*|\.\d+)(e[+-]?\d{1,3})?", text, re.IGNORECASE):
            raise ValueError(text)
        if not least <= float(text) <= most:
            raise ValueError(text)
        return float(text)

    return Kind(parse, f"a number of at least {least}" if math.isinf(most) else f"a number from {least} to {most}")


def one_of(words: Sequence[str], *, upper: bool = False) -> Kind:
    """Return the kind of these words, in any case."""

    def parse(text: str) -> Value:
        found = next((word for word in words if word.lower() == text.lower()), None)
        if found is None:
            raise ValueError(text)
        return found.upper() if upper else found

    return Kind(parse, f"one of {', '.join(words)}")


def strategy(*, mean: bool) -> Kind:
    """Return the kind of local calibration strategies."""

    def parse(text: str) -> Value:
        parse_strategy(text)
        return text.lower()

    # a constant is one batch, so the average over batches is its extrema
    return Kind(parse, STRATEGIES if mean else STRATEGIES.replace("mean, ", "mean (as extrema), "))


def numbers(pattern: str, legal: str, *, empty: bool = True) -> Kind:
    """Return the kind of texts of one pattern, used unchanged."""
    compiled = re.compile(pattern, re.IGNORECASE)

    def parse(text: str) -> Value:
        if (empty and not text) or compiled.fullmatch(text):
            return text
        raise ValueError(text)

    return Kind(parse, legal + (", or empty" if empty else ""))


def layer_numbers() -> Kind:
    """Return the kind of lists of layer numbers, such as 0,2."""

    def parse(text: str) -> Value:
        if text and not re.fullmatch(r"\d+(,\d+)*,?", text):
            raise ValueError(text)
        return tuple(int(part) for part in text.split(",") if part)

    return Kind(parse, "layer numbers of the float IR such as 0 or 0,2, or empty")


def clamping() -> Kind:
    """Return the kind of `clip(low,high)` and `second(low,high)`."""

    def parse(text: str) -> Value:
        found = re.fullmatch(r"(clip|second)\(([^,()]+),([^,()]+)\)", text.lower())
        if found is None:
            raise ValueError(text)
        low, high = float(found[2]), float(found[3])
        # false for NaN as well, which float() reads
        if not low <= 0 <= high:
            raise ValueError(text)
        return (found[1], low, high)

    return Kind(parse, "clip(low,high) or second(low,high) with low <= 0 <= high, such as clip(-inf,inf)")


def search() -> Kind:
    """Return the kind of `batches,threshold,L` or `G`."""

    def parse(text: str) -> Value:
        found = re.fullmatch(r"(\d+),(-?\d+\.?\d*),([lg])", text.lower())
        if found is None:
            raise ValueError(text)
        return (int(found[1]), float(found[2]), found[3] == "l")

    return Kind(parse, "batches,threshold,L or G, such as 1,0.02,L (0 batches: no search)")


def tuning() -> Kind:
    """Return the kind of `[quant_method,...][approx_method,...]`: two tuples of numbers."""

    def parse(text: str) -> Value:
        found = re.findall(r"\[([^\[\]]*)\]", text)
        if "".join(f"[{part}]" for part in found) != text or not 1 <= len(found) <= 2:
            raise ValueError(text)
        parts = [tuple(float(number) for number in part.split(",")) for part in found]
        if not all(math.isfinite(number) for part in parts for number in part):
            raise ValueError(text)
        # approx_method may be left out
        return (*parts, (0.0,))[:2]

    return Kind(
        parse,
        "[quant_method,parameters...][approx_method,parameters...] of finite numbers, such as [0][0] or [2,20][0]",
    )


def metrics() -> Kind:
    """Return the kind of lists of metrics with text arguments: ((name, (argument, ...)), ...), each once."""

    def parse(text: str) -> Value:
        found: list[tuple[str, tuple[str, ...]]] = []
        place = 0
        while place < len(text):
            match = METRIC.match(text, place)
            if match is None or (match.end() < len(text) and text[match.end()] != ","):
                raise ValueError(text)
            arguments = tuple(part for part in re.split("[,;]", match[2] or "") if part)
            found.append((match[1], arguments))
            place = match.end() + 1
        # a metric given twice would be computed and reported twice
        return tuple(dict.fromkeys(found))

    return Kind(parse, "metrics joined by commas, with arguments in brackets: TopKMetric,TopKMetric(5), or empty")


def batch_change() -> Kind:
    """Return the kind of a batch size, or false."""

    def parse(text: str) -> Value:
        if text.lower() == "false":
            return False
        if not re.fullmatch(r"[1-9]\d{0,8}", text):
            raise ValueError(text)
        return int(text)

    return Kind(parse, "false, or a batch size of at least 1")
