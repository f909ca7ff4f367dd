"""What hides instructions of this processor from the libraries: of `tox -e processors`, for tests that set several at once."""

from __future__ import annotations

import runpy
from pathlib import Path

MATRIX = runpy.run_path(str(Path(__file__).parents[2] / "benchmarks" / "processors.py"))
NUMPYS: str = MATRIX["NUMPYS"]
"""The value of NPY_DISABLE_CPU_FEATURES."""
