"""How much a run does: gate (the default), dev, nightly."""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from hypothesis import settings


@dataclass(frozen=True)
class Profile:
    """How many generated examples an item runs after its rows, who draws them, and which checks they run."""

    examples: int
    drawn: bool = True
    """Hypothesis draws them from a new seed each time and remembers failures. Otherwise hashes give the same cases
    each time."""
    sampled: bool = False
    """The costly checks run on a sample of the cases."""
    strong: bool = False
    """Combine every special size with every class of every attribute and of data."""

    @functools.cache  # noqa: B019 - there are three profiles, and they live as long as the program
    def settings(self) -> settings:
        """Return Hypothesis settings: no verdict by a clock, and no shrinking: ours works on whole cases."""
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
