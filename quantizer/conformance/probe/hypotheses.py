"""The hypotheses about an engine: every arithmetic that a platform file can declare for an operator."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal, get_args

from quantizer.conformance.probe.additions import saturated
from quantizer.conformance.probe.question import Array, Question
from quantizer.core.arithmetics import form_of
from quantizer.core.errors import QuantizerError
from quantizer.core.library import Library
from quantizer.core.platforms import Platform
from quantizer.core.rounding_modes import DETERMINISTIC
from quantizer.core.spec import Spec
from quantizer.core.variants import RatioArithmetic, Variant

NAME = "probed"
RATIOS: tuple[RatioArithmetic, ...] = get_args(RatioArithmetic)
OF_ONE = "float32_product_of_one"
"""A ratio that differs from the float64 one only if weights have one scale; half_away treats it as float64."""
WHOLE_BITS = 31
ROUNDED = (
    "exact",
    "multiplier_shift",
    "q31_wrapping_left",
    "q31_wrapping",
    "integer_multiplier_shift",
    "area_multiplier",
)
"""Requantizations that round in the platform's mode."""
WIDTHS: Mapping[str, range] = {
    "multiplier_shift": range(4, 25),
    "q31_single": range(4, 32),
    "integer_multiplier_shift": range(8, 32),
}
"""Requantization -> bits that its multiplier may have."""
OF_RATIOS = (
    "half_away",
    "q31_single",
    "q31_double",
    "q31_half_up",
    "q31_half_up_in_8_lanes",
    "q15_half_up",
    "q15_single",
    "q31_wrapping_left",
    "q31_wrapping",
)
"""Requantizations of products whose multiplier depends on how the ratio of scales is formed."""
WIDENED = range(25)
"""Bits by which operands of a sum are shifted to the left."""
OPERAND_SHIFT = 20
"""The number of bits by which operands of sums are shifted; needed if an operand has its own multiplier to the
output."""
ACCUMULATORS = (16, 20, 24, 32)
"""Widths in bits of accumulators that the sums of a question can exceed."""
WRAP, SATURATE = "wrap", "saturate"
ADDED_FIRST = ("bias", "products")
"""What is in the accumulator first, if it saturates at each addition."""
WIDE: Literal["wide"] = "wide"
"""The width of an accumulator that no sum exceeds."""

OF_MULTIPLIERS = ("bits", "left_shift", "sum_shift", "unify_shifts", "overflow")
"""Settings that belong under `multiplier` in a platform file."""
WORDS: Mapping[str, str] = {
    "requantize": "{}",
    "platform": "{}",
    "bits": "{} bits",
    "float32": "dequantized, in float32 ({})",
    "sum times": "an exact sum times a {} ratio",
    "zero point": "zero point {} the rounding",
    "ratio": "ratio in {}",
    "overflow": "multiplier overflows as on {}",
    "unify_shifts": "one shift for all channels",
    "tables": "table in {}",
    "additions": "at each addition, the {} first",
}
"""Setting -> its description in words."""

Accumulator = Literal["wide"] | tuple[int, str]
Settings = tuple[tuple[str, Any], ...]


@dataclass(frozen=True)
class Hypothesis:
    """One arithmetic: platform settings, a shipped platform's, or a program of float32 operations."""

    settings: Settings
    platform: Platform | None = None
    program: Callable[[Question], Array] | None = None
    shipped: str = ""
    """The name of the shipped platform, if the hypothesis is this platform unchanged."""
    narrowed: Callable[[Accumulator], Hypothesis] | None = None
    """For a program whose sums may overflow a narrow accumulator: makes the same program with that accumulator."""

    def __str__(self) -> str:
        return f"as {self.shipped}" if self.shipped else ", ".join(_worded(key, value) for key, value in self.settings)

    def answers(self, question: Question) -> Array | None:
        """Return the codes under this hypothesis; None if it has no rule for the question."""
        try:
            if self.program is not None:
                return self.program(question)
            assert self.platform is not None
            return question.expected(self.platform)
        # not every platform has a rule for every operator, and not every program for every question
        except (QuantizerError, KeyError, ValueError, RuntimeError, AssertionError, TypeError, IndexError):
            return None

    def value(self, key: str) -> Any:
        """Return a setting by name, or None."""
        return dict(self.settings).get(key)

    def but(self, family: str, **changes: Any) -> Hypothesis:
        """Return the hypothesis with changed or further settings."""
        return declared(family, {**dict(self.settings), **changes})


def hypotheses(spec: Spec, library: Library, *, steps: bool) -> list[Hypothesis]:
    """Return every hypothesis about *spec*, shipped platforms last; sums stay inside the accumulator.

    *steps*: whether the engine's grids are float32 codes per unit.
    """
    family = spec.quantization.family
    found = [declared(family, settings) for settings in _settings(spec, steps=steps)]
    shipped = [
        Hypothesis((("platform", name),), platform, shipped=name)
        for name, platform in library.platforms.items()
        if platform.enclosing is None and library.schemes_for(spec, platform)
    ]
    return [*found, *shipped]


def with_accumulators(spec: Spec, kept: Iterable[Hypothesis]) -> list[Hypothesis]:
    """Return the hypotheses *kept*, each with every narrow accumulator and with one that no sum exceeds."""
    family, found = spec.quantization.family, []
    narrow: list[Accumulator] = [*itertools.product(ACCUMULATORS, (WRAP, SATURATE))]
    for one in kept:
        if one.narrowed is not None:
            found += [one, *(one.narrowed(each) for each in narrow)]
        if one.shipped or one.program is not None:
            found += [] if one.narrowed else [one]
            continue
        found += [one.but(family, accumulator=each) for each in (WIDE, *narrow)]
        found += [_at_each_addition(one, family, bits, first) for bits in ACCUMULATORS for first in ADDED_FIRST]
    return found


def _at_each_addition(one: Hypothesis, family: str, bits: int, first: str) -> Hypothesis:
    """Return *one* with an accumulator that saturates at each addition instead of at the end.

    A platform file declares both in the same way.
    """
    whole, wide = one.but(family, accumulator=(bits, SATURATE)), one.but(family, accumulator=WIDE)

    def run(question: Question) -> Array:
        codes = wide.answers(saturated(question, bits, first))
        assert codes is not None, "the hypothesis has a rule for the question"
        return codes

    return replace(whole, settings=(*whole.settings, ("additions", first)), program=run)


@functools.lru_cache(maxsize=1 << 14)
def _platform(family: str, settings: Settings) -> Platform:
    values = dict(settings)
    raw: dict[str, Any] = {
        "platform": NAME,
        "summary": "What a probe found.",
        "schemes": ["w8a8", "a8"],
        "requantize": {"default": "exact", **({family: values["requantize"]} if "requantize" in values else {})},
    }
    multiplier: dict[str, Any] = {key: values[key] for key in OF_MULTIPLIERS if key in values}
    if "ratio" in values:
        multiplier["ratio"] = {family: values["ratio"]}
    if multiplier:
        raw["multiplier"] = multiplier
    if "rounding" in values:
        raw["rounding"] = values["rounding"]
    if "quantizer" in values:
        raw["quantizer"] = dict(zip(("operation", "rounding", "zero_point"), values["quantizer"], strict=True))
    if "tables" in values:
        raw["tables"] = {"arithmetic": values["tables"]}
    match values.get("accumulator", "wide"):
        case "wide":
            raw["accumulator"] = {"bits": 64, "overflow": "unbounded"}
        case bits, overflow:
            raw["accumulator"] = {"bits": bits, "overflow": overflow}
    return Platform.model_validate(raw)


def declared(family: str, settings: Mapping[str, Any]) -> Hypothesis:
    """Return the hypothesis that a platform has *settings* for *family*."""
    items = tuple(settings.items())
    return Hypothesis(items, _platform(family, items))


def _settings(spec: Spec, *, steps: bool) -> Iterator[dict[str, Any]]:
    form = form_of(spec)
    if spec.op == "quantize":
        operations = ("exact", "divide_float32", "inverse_float32", *(("multiply_float32",) if steps else ()))
        for key in itertools.product(operations, DETERMINISTIC, ("before", "after")):
            yield {"quantizer": key}
    elif form is not None:
        for variant in get_args(Variant):
            yield from _of_variant(variant, form, weights=spec.has_weights)
    if form is None and spec.op not in ("softmax", "quantize"):
        for arithmetic, mode in itertools.product(("float64", "float32"), DETERMINISTIC):
            yield {"tables": arithmetic, "rounding": mode}


def _of_variant(variant: Variant, form: str, *, weights: bool) -> Iterator[dict[str, Any]]:
    modes: list[dict[str, Any]] = [{"rounding": mode} for mode in DETERMINISTIC] if variant in ROUNDED else [{}]
    widths: list[dict[str, Any]] = [{"bits": bits} for bits in WIDTHS.get(variant, ())] or [{}]
    shifts: list[dict[str, Any]] = [{}]
    if form == "sum" and variant in ("q31_double", "q31_single"):
        shifts = [{"sum_shift": places} for places in WIDENED]
        shifts += [{"left_shift": places} for places in WIDENED] if variant == "q31_double" else [{}]
    elif form != "product" and variant in ("q31_double", "q31_single"):
        shifts = [{"sum_shift": OPERAND_SHIFT}, *([{}] if variant == "q31_double" else [])]
    if weights and variant == "multiplier_shift":
        shifts = [{}, {"unify_shifts": True}]
    for mode, width, shift in itertools.product(modes, widths, shifts):
        # the ratio's format shows only if the multiplier keeps all of its bits
        full = width.get("bits", WHOLE_BITS) == WHOLE_BITS
        ratios = RATIOS[:1] if form != "product" or variant not in OF_RATIOS or not full else RATIOS
        ratios = (
            tuple(ratio for ratio in ratios if ratio != OF_ONE) if not weights or variant == "half_away" else ratios
        )
        for ratio in ratios:
            chosen: dict[str, Any] = {"ratio": ratio} if len(ratios) > 1 else {}
            yield {"requantize": variant, **mode, **width, **shift, **chosen}
            if full and variant.startswith(("q31", "q15")) and form in ("product", "one input"):
                yield {"requantize": variant, **mode, **width, **shift, **chosen, "overflow": "x86"}


def _worded(key: str, value: Any) -> str:
    match key, value:
        case "accumulator", "wide":
            return "accumulator wider than its sums"
        case "accumulator", (bits, overflow):
            return f"accumulator {bits} bits, {overflow}"
        case "quantizer", (operation, mode, place):
            return f"{operation}, rounding {mode}, zero point {place}"
        case _:
            return WORDS.get(key, f"{key} {{}}").format(value)
