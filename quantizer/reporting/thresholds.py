"""Thresholds of the gate from section [quantizer] of tox.ini, or [tool.quantizer] of pyproject.toml."""

from __future__ import annotations

import configparser
import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from quantizer.core.errors import SpecError
from quantizer.core.reading import Readable, one_line, shown_value
from quantizer.core.wording import suggestion

FAIL_ON = ("new-failure", "regression", "coverage")
FACTOR = 1.25
"""The factor by which a ratio of a graded check may grow."""
PROJECT = Readable("a settings file of a project", 1 << 20, SpecError)
TOX, SECTION = "tox.ini", "quantizer"
PYPROJECT, TABLE = "pyproject.toml", "tool.quantizer"


@dataclass(frozen=True)
class Thresholds:
    """Reasons to fail, and the allowed growth of an error; None: not set."""

    fail_on: frozenset[str] | None = None
    """Words of `FAIL_ON`; empty: a comparison never fails."""
    factor: float | None = None
    """Growth of a graded ratio that is a regression, at least 1."""
    lsb: float | None = None
    """Growth of the worst end-to-end error, in output steps, that is a regression. If None, only ratios count."""

    def over(self, other: Thresholds) -> Thresholds:
        """Return these thresholds, with the values of *other* for those that are not set."""
        mine = {name: value for name, value in vars(self).items() if value is not None}
        return Thresholds(**(vars(other) | mine))


def read_thresholds(folder: Path) -> Thresholds:
    """Return the settings of the project in *folder*; SpecError for an unknown key, a wrong value, or two files."""
    found = {place: keys for place, keys in _stated(folder).items() if keys is not None}
    if len(found) > 1:
        first, second = found
        raise SpecError(f"{second}: thresholds are also in {first}. State them in one of the two.")
    for place, keys in found.items():
        return _thresholds(keys, place)
    return Thresholds()


def _stated(folder: Path) -> dict[str, Mapping[str, object] | None]:
    tox, pyproject = folder / TOX, folder / PYPROJECT
    stated: dict[str, Mapping[str, object] | None] = {}
    file = tox
    try:
        if tox.is_file():
            # a % in another tool's section is not a reference
            parser = configparser.ConfigParser(interpolation=None)
            parser.read_string(PROJECT.text_of(tox, str(tox)), source=str(tox))
            stated[f"{tox}: [{SECTION}]"] = dict(parser[SECTION]) if SECTION in parser else None
        file = pyproject
        if pyproject.is_file():
            tools = PROJECT.toml_of(pyproject, str(pyproject)).get("tool", {})
            table = tools.get(SECTION) if isinstance(tools, dict) else tools
            if table is not None and not isinstance(table, dict):
                raise SpecError(f"{pyproject}: {TABLE}: must be a table, got {shown_value(table)}.")
            stated[f"{pyproject}: [{TABLE}]"] = table
    except (configparser.Error, ValueError, RecursionError) as err:  # Python refuses numbers with too many digits
        raise SpecError(f"{file}: thresholds cannot be read: {one_line(err)}.") from None
    return stated


def _thresholds(keys: Mapping[str, object], place: str) -> Thresholds:
    known = ("fail_on", "factor", "lsb")
    for key in keys:
        if key not in known:
            raise SpecError(f"{place}: {key}: no such key.{suggestion(key, known, 'Known')}")
    return Thresholds(
        fail_on=read_reasons(keys["fail_on"], f"{place}: fail_on") if "fail_on" in keys else None,
        factor=read_number(keys["factor"], f"{place}: factor", least=1) if "factor" in keys else None,
        lsb=read_number(keys["lsb"], f"{place}: lsb", least=0) if "lsb" in keys else None,
    )


def read_reasons(value: object, where: str) -> frozenset[str]:
    """Read reasons to fail, `new-failure,regression` or a list, or `none`; SpecError for another word."""
    parts = value.replace("\n", ",").split(",") if isinstance(value, str) else value
    if not isinstance(parts, list) or not all(isinstance(part, str) for part in parts):
        raise SpecError(f"{where}: must be words, got {shown_value(value)}. Choose from {', '.join(FAIL_ON)}, or none.")
    words = [part.strip() for part in parts if part.strip()]
    if words == ["none"]:
        return frozenset()
    for word in words:
        if word not in FAIL_ON:
            raise SpecError(f"{where}: {word!r} is not a reason to fail. Choose from {', '.join(FAIL_ON)}, or none.")
    if not words:
        raise SpecError(f"{where}: names no reason to fail. Choose from {', '.join(FAIL_ON)}, or none.")
    return frozenset(words)


def read_number(value: object, where: str, *, least: float) -> float:
    """Read a finite number of at least *least*; SpecError for anything else."""
    try:
        # True would be 1
        number = float(value) if isinstance(value, str | int | float) and not isinstance(value, bool) else math.nan
    except (ValueError, OverflowError):
        number = math.nan
    if not (math.isfinite(number) and number >= least):
        raise SpecError(f"{where}: must be a number of {least:g} or more, got {shown_value(value)}.")
    return number
