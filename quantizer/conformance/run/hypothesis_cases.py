"""Cases drawn by Hypothesis, for the profiles `dev` and `nightly`. The only module that imports Hypothesis."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

import hypothesis
from hypothesis import strategies as st

from quantizer.conformance.setup.profiles import Profile

if TYPE_CHECKING:
    from quantizer.conformance.run.collection import State

APART = 3**100
"""Larger than integers in any source. Hypothesis prefers integers of loaded sources, so edits would change cases."""
ROWS = "the rows of the covering array"


def integers(low: int, high: int) -> st.SearchStrategy[int]:
    """Return Hypothesis's integers from *low* to *high*, independent of the source files that are loaded."""
    return st.integers(APART + low, APART + high).map(lambda drawn: drawn - APART)


@st.composite
def _drawn(draw: Callable[[Any], Any], state: State) -> Any:
    """Return a case of *state*. All items share this strategy, because Hypothesis reads its source to make one."""
    return state.runner.draw(lambda low, high: draw(integers(low, high)), hypothesis.errors.HypothesisException)


def drawn_test(state: State, profile: Profile) -> Callable[..., None]:
    """Return the Hypothesis test: the rows of the covering array as its explicit example, then drawn cases."""
    cases = partial(_drawn, state)

    @profile.settings()
    @hypothesis.given(case=cases())
    @hypothesis.example(case=ROWS)
    def test(case: Any) -> None:
        if case is ROWS:
            state.runner.rows()
        else:
            hypothesis.event(f"data: {case.data.set}")
            state.runner.run(case)

    return test
