"""Profiles, which decide how much a run does: gate (the default), dev, nightly."""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from hypothesis import settings


@dataclass(frozen=True)
class Profile:
    """The number of generated examples that an item runs after its rows, their source, and the checks that they run."""

    examples: int
    drawn: bool = True
    """Whether Hypothesis draws them from new seeds and keeps failures; otherwise, hashes give the same cases."""
    sampled: bool = False
    """Whether costly checks run only on a sample of the cases."""
    strong: bool = False
    """Whether every size that kernels treat specially meets every class of every attribute and of data."""

    @functools.cache  # noqa: B019 - there are three profiles, and they live as long as the program
    def settings(self) -> settings:
        """Return Hypothesis settings: no time limits, and no shrinking, because our shrinking works on whole cases."""
        from hypothesis import HealthCheck, Phase, settings
        from hypothesis.database import DirectoryBasedExampleDatabase

        return settings(
            max_examples=self.examples,
            database=DirectoryBasedExampleDatabase(".hypothesis/examples"),
            deadline=None,
            suppress_health_check=[HealthCheck.too_slow],  # what slows a machine down is not a fault of the operator
            phases=[Phase.explicit, Phase.reuse, Phase.generate, Phase.target],
            print_blob=False,
        )


PROFILES = {
    "gate": Profile(examples=4, drawn=False, sampled=True),
    "dev": Profile(examples=50),
    "nightly": Profile(examples=500, strong=True),
}
