"""What all tests share: programs that start at once."""

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))  # for `from warmed import Warmed`

from warmed import Warmed  # noqa: E402


@pytest.fixture(scope="session")
def warmed() -> Iterator[Warmed]:
    """Start programs as children of one process that has imported what they need."""
    parent = Warmed()
    yield parent
    parent.close()
