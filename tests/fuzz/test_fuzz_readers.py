"""Damaged files of every kind are read or refused by an error of ours: within 5 s of the processor and 1 GB, and nothing else."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("resource", reason="limits on memory are of POSIX systems")
DRIVER = Path(__file__).with_name("drive.py")
HANG = 3600
"""Seconds after which a reader hangs where even a signal does not reach it."""


def driven(count: int, seed: int) -> dict[str, dict[str, int]]:
    # The libraries' own threads each reserve memory that no reader asked for.
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
    command = [sys.executable, str(DRIVER), str(count), str(seed)]
    done = subprocess.run(command, check=False, capture_output=True, text=True, env=environment, timeout=HANG)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def checked(count: int, seed: int) -> None:
    found = driven(count, seed)
    assert not found["broken"], "\n".join(
        f"{one['reader']} {seed} {one['index']}: {one['what']}" for one in found["broken"]
    )
    assert sum(found["read"].values()) + sum(found["refused"].values()) == count
    assert len(found["refused"]) == found["readers"]  # each reader met damage


def test_ten_thousand_damaged_files_are_read_or_refused() -> None:
    checked(10_000, 22)


@pytest.mark.nightly
@pytest.mark.parametrize("seed", range(4))
def test_a_hundred_thousand_damaged_files_are_read_or_refused(seed: int) -> None:
    checked(25_000, seed)
