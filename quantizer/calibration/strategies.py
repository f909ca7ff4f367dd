"""Local calibration strategies: from the statistics of one tensor to its range."""

from __future__ import annotations

import re
from dataclasses import dataclass

import torch
from torch import Tensor

from quantizer.calibration import aciq, kld, weighted
from quantizer.calibration.statistics import Statistics
from quantizer.core.errors import UnsupportedError

LEGAL = (
    "extrema, mean, in_ir, [N]std, [N]kld, [R]aciq_laplace, [R]aciq_gauss, [R]percentile (N a whole number, R a "
    "number; both may be omitted except before std), weighted_scale_param[a,b,c,d]"
)
_WHOLE, _REAL = r"(\d{1,4})", r"(\d{1,6}(?:\.\d{0,12})?)"
_FORMS = {
    "nstd": rf"{_WHOLE}std",
    "kld": rf"{_WHOLE}?kld",
    "aciq_laplace": rf"{_REAL}?aciq_laplace",
    "aciq_gauss": rf"{_REAL}?aciq_gauss",
    "percentile": rf"{_REAL}?percentile",
    "weighted": rf"weighted_scale_param\[{_REAL},{_REAL},{_REAL},{_REAL},?\]",
}
MOMENTS = ("nstd", "aciq_laplace", "aciq_gauss", "weighted")
DEFAULTS = {"kld": (10.0,), "aciq_laplace": (1.0,), "aciq_gauss": (1.0,), "percentile": (1.0,)}


@dataclass(frozen=True)
class Strategy:
    """A calibration strategy, such as kld or clip, and the numbers of its text form."""

    name: str
    numbers: tuple[float, ...] = ()

    @property
    def moments(self) -> bool:
        """Whether it needs mean and deviations."""
        return self.name in MOMENTS

    @property
    def histogram(self) -> bool:
        """Whether it needs a histogram of each tensor: kld only."""
        return self.name == "kld"


def parse_strategy(text: str) -> Strategy:
    """Return the strategy that *text* names; ValueError if the name is unknown."""
    word = text.lower().replace(" ", "")
    if word in ("extrema", "mean", "in_ir"):
        return Strategy(word)
    for name, form in _FORMS.items():
        if found := re.fullmatch(form, word):
            given = tuple(float(number) for number in found.groups() if number is not None)
            return Strategy(name, given or DEFAULTS.get(name, ()))
    raise ValueError(f"strategy {text!r}: must be one of {LEGAL}")


def calibrated(strategy: Strategy, found: Statistics, *, bits: int, symmetric: bool) -> tuple[Tensor, Tensor]:
    """Return (smallest, largest) as float32, widened to contain 0: 0-d, or one pair for each slice.

    bits: the bits of the codes; symmetric: whether their zero point is 0. `in_ir` takes the ends of
    *found*, into which the caller has put those of the file. Source: the Compass Optimizer's formulas, in its order of
    operations.
    """
    match strategy.name:
        case "extrema" | "in_ir":
            low, high = found.low, found.high
        case "mean":
            low, high = found.running_low, found.running_high
        case "percentile":
            (share,) = strategy.numbers
            low, high = found.low * share, found.high * share
        case "nstd":
            low, high = within_deviations(found, int(strategy.numbers[0]))
        case "kld":
            low, high = kld.ranges(found, 2**bits, max(2, int(strategy.numbers[0])))
        case "aciq_laplace" | "aciq_gauss":
            kind = aciq.LAPLACE if strategy.name == "aciq_laplace" else aciq.GAUSS
            low, high = aciq.ranges(found, kind, bits, strategy.numbers[0], symmetric=symmetric)
        case "weighted":
            low, high = weighted.ranges(found, bits, strategy.numbers)
        case _:
            raise UnsupportedError(f"strategy {strategy.name!r}: must be one of {LEGAL}.")
    # 0 must have a code: padding and rectifiers produce it
    return torch.clamp(low, max=0.0), torch.clamp(high, min=0.0)


def within_deviations(found: Statistics, count: int) -> tuple[Tensor, Tensor]:
    """Return mean -+ count * deviation, clamped to the averaged ends."""
    assert found.mean is not None
    assert found.deviation is not None
    spread = count * found.deviation
    return torch.maximum(found.running_low, found.mean - spread), torch.minimum(found.running_high, found.mean + spread)
