"""Schemes: a weight part times an activation part, declared in op_specs/schemes.yaml."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Literal

from pydantic import Field

from quantizer.core.dtypes import dtype
from quantizer.core.model import Model
from quantizer.core.model_errors import PART_NAME, Finding
from quantizer.core.wording import suggestion

Granularity = Literal["tensor", "channel", "block"]
FloatFormat = Literal["float8_e4m3fn", "float8_e5m2", "float6_e2m3fn", "float6_e3m2fn", "float4_e2m1fn"]
Grid = Literal["uniform", "blocks"] | FloatFormat
"""The kind of codes that an arithmetic must support: integers with a scale per tensor or per channel, or a special
kind."""
Symmetry = Literal["symmetric", "asymmetric"]
CodeRange = Literal["full", "restricted"]
Rule = Literal["linear", "power_of_two"]
PartName = Annotated[str, Field(pattern=PART_NAME, max_length=20)]


class WeightPart(Model):
    """How weights and biases become codes."""

    bits: int = Field(ge=2, le=16)
    """The number of bits of a weight code."""
    granularity: Granularity = "channel"
    """One scale for the tensor, one for each slice along the channel axis, or one for each block in each slice."""
    block: int | None = Field(default=None, ge=2, le=65536)
    """Elements of a block along the axis of the sum; the last block may be shorter. Only with granularity block."""
    symmetry: Symmetry = "symmetric"
    """Symmetric: the zero point is 0."""
    range: CodeRange = "restricted"
    """Restricted leaves out the most negative code."""
    rule: Rule = "linear"
    """Linear: any scale; power_of_two: the next power of two above it."""
    bias_bits: int = Field(default=32, ge=8, le=64)
    """The number of bits of a bias code."""


class ActivationPart(Model):
    """How activations become codes."""

    bits: int = Field(ge=2, le=16)
    """The number of bits of an activation code."""
    format: Literal["integer"] | FloatFormat = "integer"
    """The values of codes before scaling: integers, or the values of a narrow float. A narrow float is
    symmetric and has no zero point. A number beyond the largest value becomes that value."""
    symmetry: Symmetry = "asymmetric"
    """Symmetric: the zero point is 0."""
    range: CodeRange = "full"
    """Restricted leaves out the most negative code."""
    rule: Rule = "linear"
    """Linear: any scale; power_of_two: the next power of two above it."""
    accumulator_bits: int = Field(default=32, ge=16, le=64)
    """The number of bits of the accumulator, unless the platform declares its own."""
    lut_bits: int = Field(default=8, ge=2, le=16)
    """A lookup table has 2**lut_bits entries, if the platform uses tables of fixed size."""
    fast: bool = False
    """Operators use the platform's fast variant instead of the usual one. Operators without a fast variant do not have
    the scheme."""


class Schemes(Model):
    """The content of op_specs/schemes.yaml."""

    weights: dict[PartName, WeightPart] = {}
    """Weight parts by name."""
    activations: dict[PartName, ActivationPart] = {}
    """Activation parts by name; each is also the scheme of operators without weights."""
    schemes: list[str] = []
    """Combinations: the name of a weight part, then the name of an activation part. A suffix of both is written
    once."""

    def with_added(self, other: Schemes) -> Schemes:
        """Return the parts and combinations of this object and of *other*."""
        return Schemes(
            weights=self.weights | other.weights,
            activations=self.activations | other.activations,
            schemes=self.schemes + other.schemes,
        )


class Scheme(Model):
    """One named combination; `weight` is None for an operator without weights."""

    name: str
    activation: ActivationPart
    weight: WeightPart | None = None

    @property
    def grid(self) -> Grid:
        """The kind of arithmetic that its codes need."""
        if self.weight is not None and self.weight.granularity == "block":
            return "blocks"
        return "uniform" if self.activation.format == "integer" else self.activation.format

    @property
    def grid_words(self) -> str:
        """The kind of arithmetic in words, for messages."""
        words = {"uniform": "integers under one scale", "blocks": "weights in blocks"}
        return words.get(self.grid, f"activations of {self.grid}")


def combined(weight: str, activation: str) -> str | None:
    """Return the scheme's name for two parts: w8a8_pow2 for w8_pow2 and a8_pow2. None if the suffixes differ."""
    stem, mark, suffix = weight.partition("_")
    return stem + activation if activation.partition("_")[1:] == (mark, suffix) else None


def splits(name: str, schemes: Schemes) -> list[tuple[str, str]]:
    """Return all ways to read *name* as a weight part followed by an activation part."""
    return [(w, a) for w in schemes.weights for a in schemes.activations if combined(w, a) == name]


def all_schemes(schemes: Schemes) -> dict[str, Scheme]:
    """Return every declared combination and every activation part by itself, by name."""
    found = {}
    for name in schemes.schemes:
        # a name that can be read in two ways was reported
        for weight, activation in splits(name, schemes)[:1]:
            found[name] = Scheme(name=name, weight=schemes.weights[weight], activation=schemes.activations[activation])
    return found | {name: Scheme(name=name, activation=part) for name, part in schemes.activations.items()}


def check_schemes(schemes: Schemes, before: Schemes) -> list[Finding]:
    """Return the errors in the names of a file, given the parts of the files *before* it."""
    findings = [*_check_parts(schemes)]
    taken = before.weights.keys() | before.activations.keys() | set(before.schemes)
    for kind, parts in (("weights", schemes.weights), ("activations", schemes.activations)):
        for name in parts:
            if name in taken:
                findings.append(Finding((kind, name), "a part or scheme of that name is declared before.", key=True))
            taken.add(name)
    both = before.with_added(schemes)
    # parts of earlier files may be combined here
    pairs = [combined(weight, activation) for weight in both.weights for activation in both.activations]
    legal = [name for name in pairs if name is not None]
    for index, name in enumerate(schemes.schemes):
        ways = splits(name, both)
        if name in taken:
            findings.append(Finding(("schemes", index), f"{name!r} is declared before."))
        elif not ways:
            text = f"{name!r} is not a weight part followed by an activation part."
            findings.append(Finding(("schemes", index), text + suggestion(name, legal, "Combinations")))
        elif len(ways) > 1:
            text = f"{name!r} can be read as {' and as '.join(f'{w} + {a}' for w, a in ways)}. Rename a part."
            findings.append(Finding(("schemes", index), text))
        taken.add(name)
    return findings


def _check_parts(schemes: Schemes) -> Iterator[Finding]:
    """Yield contradictions in a part: blocks without a size, or other bits than its float format has."""
    for name, part in schemes.weights.items():
        if (part.granularity == "block") != (part.block is not None):
            text = "must be given with granularity block, and only there. Write the elements of a block, such as 128."
            yield Finding(("weights", name, "block"), text)
    for name, form in schemes.activations.items():
        if form.format == "integer":
            continue
        bits = dtype(form.format).bits
        if form.bits != bits:
            yield Finding(("activations", name, "bits"), f"{form.format} has {bits} bits, got {form.bits}.")
        if form.symmetry != "symmetric":
            yield Finding(
                ("activations", name, "symmetry"), f"{form.format} has no zero point. Write symmetry: symmetric."
            )
        if form.range != "full" or form.rule != "linear":
            yield Finding(("activations", name, "format"), "range and rule are those of integers. Leave them out.")
