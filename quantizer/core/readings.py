"""Readings: other arithmetics that are also right for a plugin, if the owner of the run accepts them (ADR 0027).

A reading replaces the platform's arithmetic for a whole item. A function under test cannot choose a reading. The key
`readings` of a spec or the option `--op-reading OPERATOR/PLATFORM:READING` chooses it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

ReadingName = Literal["exact_sums", "float32_sums", "own_mean", "real_attributes", "rounded_once", "undisclosed_stages"]
READINGS: Mapping[str, str] = {
    "exact_sums": "sums stay exact where the platform rounds to float32; a fused activation's limit is a real number",
    "float32_sums": "sums are added in float32, in any order, where the platform adds in float32",
    "own_mean": "a mean divides, or multiplies by a number near 1 / terms, where the platform has a multiplier for it",
    "real_attributes": "attributes stay real numbers where the platform's rule makes integers of them",
    "undisclosed_stages": "numbers, tables or codes of inner stages are not provided; declared formats bound the loss",
    "rounded_once": "the operator on the real values of the codes, rounded once; no multiplier is provided",
}
"""Name of a reading -> what it permits."""
