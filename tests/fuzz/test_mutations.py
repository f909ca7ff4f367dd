"""The mutations themselves take what an earlier one has damaged."""

from __future__ import annotations

import io
import random
import sys
import zipfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
import mutations as m


def test_an_archive_whose_damaged_count_says_0_is_mutated_all_the_same() -> None:
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w"):
        pass
    empty = stream.getvalue()
    assert m.archive(random.Random(0), empty) != empty
