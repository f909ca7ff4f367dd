"""How much a run does: gate (the default), dev, nightly."""

from __future__ import annotations

import functools
from dataclasses import dataclass

from hypothesis import Phase, settings
from hypothesis.database import DirectoryBasedExampleDatabase


@dataclass(frozen=True)
class Profile:
    """How many generated examples an item runs after its rows, and from which seed."""

    examples: int
    derandomized: bool
    database: bool

    @functools.cache  # noqa: B019 - there are three profiles, and they live as long as the program
    def settings(self) -> settings:
        """Return Hypothesis settings: no deadline, nothing suppressed; shrinking is ours, on whole cases."""
        phases = [Phase.explicit, Phase.reuse, Phase.generate]
        if not self.derandomized:
            phases.append(Phase.target)
        database = DirectoryBasedExampleDatabase(".hypothesis/examples") if self.database else None
        return settings(
            max_examples=self.examples, derandomize=self.derandomized, database=database, deadline=None,
            phases=phases, print_blob=False,
        )  # fmt: skip


PROFILES = {
    "gate": Profile(examples=10, derandomized=True, database=False),
    "dev": Profile(examples=50, derandomized=False, database=True),
    "nightly": Profile(examples=500, derandomized=False, database=True),
}
