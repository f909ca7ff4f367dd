"""Only one module decides what a number of a rule means."""

import re
from pathlib import Path

import quantizer.conformance as conformance

BY_NAME = re.compile(r'(["}]) (not )?(in|<=) (trial\.|self\.trial\.)?(parameters\.)?(numbers|tables)\b')
FOLDER = Path(conformance.__file__).parent


def test_no_check_depends_on_names_of_numbers():
    """A loop over (name, places) of an attribute asks for names that it was given, which is no choice of a judge."""
    found = [
        f"{path.name}: {line.strip()}"
        for path in sorted(FOLDER.rglob("*.py"))
        for line in path.read_text().splitlines()
        if BY_NAME.search(line) and path.name != "kinds.py" and "{name, places}" not in line
    ]
    assert found == []
