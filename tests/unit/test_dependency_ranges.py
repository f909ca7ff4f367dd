"""Version ranges of the metadata agree with `tox -e lowest` and with the constraints of CI."""

import re
import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
ALL = [*PROJECT["dependencies"], *(line for extra in PROJECT["optional-dependencies"].values() for line in extra)]
RANGES = {canonicalize_name(Requirement(line).name): Requirement(line).specifier for line in ALL}


def pins(name):
    found = re.findall(r"^([\w.-]+)==(\S+)$", (ROOT / name).read_text("utf-8"), re.MULTILINE)
    return {canonicalize_name(package): Version(version) for package, version in found}


def test_the_lowest_environment_pins_each_lower_bound():
    lowest = {name: next(Version(s.version) for s in found if s.operator == ">=") for name, found in RANGES.items()}
    assert pins("constraints-lowest.txt") == lowest


@pytest.mark.parametrize("name", ["constraints.txt", "constraints-engines.txt", "constraints-lint.txt"])
def test_ci_constraints_lie_within_the_ranges(name):
    known = pins(name)
    assert known
    assert [(package, str(v)) for package, v in known.items() if package in RANGES and v not in RANGES[package]] == []
