"""Options and argument types that several commands share."""

from __future__ import annotations

import argparse
import re
from pathlib import Path

LARGEST_NUMBER = 1 << 20
LARGEST_SEED = (1 << 64) - 1


def add_specs(parser: argparse.ArgumentParser) -> None:
    """Add `--op-specs`."""
    parser.add_argument(
        "--op-specs", action="append", type=Path, default=[], help="specs besides the shipped ones (repeatable)"
    )


def add_plugins(parser: argparse.ArgumentParser) -> None:
    """Add `--op-plugins`."""
    parser.add_argument(
        "--op-plugins", action="append", type=Path, default=[], help="files or folders of operator plugins (repeatable)"
    )


def whole_number(text: str) -> int:
    """Return a number of samples, cases or processes; argparse reports errors."""
    return _within(text, 1, LARGEST_NUMBER)


def seed_number(text: str) -> int:
    """Return a seed; argparse reports errors."""
    return _within(text, 0, LARGEST_SEED)


def _within(text: str, least: int, most: int) -> int:
    if not re.fullmatch(r"-?\d{1,20}", text) or not least <= int(text) <= most:
        raise argparse.ArgumentTypeError(f"{text!r}: must be a whole number from {least} to {most}")
    return int(text)
