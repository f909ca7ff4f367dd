"""Mutations accept data that an earlier mutation damaged."""

from __future__ import annotations

import io
import random
import sys
import zipfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
import mutations as m


def test_an_archive_with_a_count_of_zero_is_mutated() -> None:
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w"):
        pass
    empty = stream.getvalue()
    assert m.archive(random.Random(0), empty) != empty
