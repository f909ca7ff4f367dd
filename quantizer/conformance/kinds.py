"""The kind of a quantize rule's numbers (names and formats), and the kinds that a platform accepts."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Literal

from quantizer.numerics.qparams import Parameters, Rescale, Table


@dataclass(frozen=True)
class Kind:
    """The names and formats of the numbers that a rule provides besides scales and zero points."""

    multiplier: str | None
    """The requantization, and how operands are rounded before they are added; None without a multiplier."""
    tables: frozenset[tuple[str, str]]
    """Name and format of each table: whether it has an entry per code, how a kernel interpolates, and the meaning of
    an entry."""
    numbers: frozenset[str]
    """Names of further integers."""
    fused: str | None
    """The operand of a fused activation."""

    def __str__(self) -> str:
        parts = [] if self.multiplier is None else [f"multiplier ({self.multiplier})"]
        parts += [f"table {name} ({form})" for name, form in sorted(self.tables)]
        parts += sorted(self.numbers)
        parts += [] if self.fused is None else [f"numbers of a fused activation ({self.fused})"]
        return ", ".join(parts) or "no numbers"


OF_ONE_INPUT = ("monotone", "piecewise_monotone", "set_valued", "poles")
"""Error models of functions of one input, which a platform may read from a table."""
MULTIPLIERS: Mapping[str, str] = {
    "multiplier": "shift",
    "positive": "positive_shift",
    "negative": "negative_shift",
    "input_multiplier": "input_shift",
    "norm_multiplier": "norm_shift",
}
"""Name of a multiplier among the integers of a rule -> name of its shift."""
SLOPES = ("slope", "negative")
"""Names of the numbers by which a function multiplies one side of 0, alone or as part of a multiplier."""
LIMITS = ("high", "most")
"""Names of the largest code that a function gives, before or after its zero point is added."""
READ_OUT = ("lut", "rest", "vector")
"""Names of tables whose entries are the codes of the result."""
Form = Literal[
    "slope",
    "bounds",
    "finer_bounds",
    "sides",
    "scaled_input",
    "scaled_result",
    "fixed_weights",
    "scaled_deviations",
    "period",
    "lanes",
    "logistic",
    "powers",
    "reciprocal",
    "inverse_root",
]
"""What the numbers of a rule stand for, where a check must know it."""
FORMS: Mapping[Form, tuple[frozenset[str], frozenset[str]]] = {
    "slope": (frozenset({"slope", "slope_shift"}), frozenset()),
    "bounds": (frozenset({"least", "most"}), frozenset()),
    "finer_bounds": (frozenset({"low", "high", "relay_bits"}), frozenset()),
    "sides": (frozenset({"positive", "positive_shift", "negative", "negative_shift"}), frozenset()),
    "scaled_input": (frozenset({"input_multiplier"}), frozenset()),
    "scaled_result": (frozenset({"multiplier", "shift"}), frozenset()),
    "fixed_weights": (frozenset({"weight_bits"}), frozenset()),
    "scaled_deviations": (frozenset({"norm_multiplier", "norm_shift"}), frozenset()),
    "period": (frozenset(), frozenset({"period"})),
    "lanes": (frozenset(), frozenset({"vector", "rest"})),
    "logistic": (frozenset(), frozenset({"logistic"})),
    "powers": (frozenset(), frozenset({"powers"})),
    "reciprocal": (frozenset(), frozenset({"reciprocal"})),
    "inverse_root": (frozenset(), frozenset({"inverse_root"})),
}
"""Form -> the names of its integers and of its tables. Checks learn a form from names only here."""
NOTHING = Kind(None, frozenset(), frozenset(), None)


def kind_of(parameters: Parameters) -> Kind:
    """Return the kind of the numbers in *parameters*."""
    rescale, fused = parameters.rescale, parameters.fused
    return Kind(
        None if rescale is None else _multiplier(rescale),
        frozenset((name, _format(table)) for name, table in parameters.tables.items()),
        frozenset(parameters.numbers),
        None if fused is None else type(fused).__name__.lower(),
    )


def has(parameters: Parameters, form: Form) -> bool:
    """Return whether *parameters* hold all numbers and tables of *form*."""
    numbers, tables = FORMS[form]
    return numbers <= parameters.numbers.keys() and tables <= parameters.tables.keys()


def looked_up(parameters: Parameters) -> bool:
    """Return whether a forward reads the codes of its result from a table.

    Then it neither scales nor rounds nor clips.
    """
    tables = parameters.tables.keys()
    return bool(tables) and tables <= set(READ_OUT) and parameters.rescale is None and not parameters.numbers


def _multiplier(rescale: Rescale) -> str:
    operands = "" if rescale.operands is None else f", operands {rescale.operands}"
    each = ", one for each block" if rescale.mantissa.dim() > 1 else ""
    return f"{rescale.variant}{operands}{each}"


def _format(table: Table) -> str:
    entries = "float entries" if table.entries.dtype.is_floating_point else "integer entries"
    return entries if abs(table.step) == 1 else f"{entries}, read between two, {table.interpolation}"


def takes(reading: str | None, declared: Kind, provided: Kind) -> bool:
    """Return whether *reading* lets a rule provide numbers of kind *provided* where the platform's are *declared*."""
    allowed = None if reading is None else _TAKES.get(reading)
    return allowed is not None and allowed(declared, provided)


def _mean_of_its_own(declared: Kind, provided: Kind) -> bool:
    own = provided == NOTHING or (provided.multiplier == "multiplier_shift" and not provided.tables)
    return declared.multiplier == "area_multiplier" and own


def _fewer_stages(declared: Kind, provided: Kind) -> bool:
    fewer = provided.tables < declared.tables and provided.numbers <= declared.numbers
    return declared.multiplier == provided.multiplier and fewer


def _fewer_numbers(declared: Kind, provided: Kind) -> bool:
    same = (declared.multiplier, declared.tables, declared.fused)
    return same == (provided.multiplier, provided.tables, provided.fused) and provided.numbers < declared.numbers


_TAKES: Mapping[str, Callable[[Kind, Kind], bool]] = {
    "own_mean": _mean_of_its_own,
    "real_attributes": _fewer_numbers,
    "undisclosed_stages": _fewer_stages,
    "rounded_once": lambda _, provided: provided == NOTHING,
}
"""Reading -> (the platform's kind, what was provided) -> whether it may be provided."""
