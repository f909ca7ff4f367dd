"""Drawn cases do not depend on constants in source files, which Hypothesis prefers by default."""

import hypothesis
import pytest
from hypothesis import strategies as st
from hypothesis.internal.conjecture import providers

from quantizer.conformance.run.hypothesis_cases import integers

NUMBERS = {7919 * place + 101 for place in range(40)}


@pytest.fixture
def sources(monkeypatch):
    """All numbers that Hypothesis knows from sources are ours."""
    known = providers._get_local_constants()
    monkeypatch.setattr(known, "integers", type(known.integers)(NUMBERS))
    providers.CONSTANTS_CACHE.cache.clear()
    yield
    providers.CONSTANTS_CACHE.cache.clear()


def met(strategy):
    found = set()

    @hypothesis.settings(max_examples=500, derandomize=True, database=None)
    @hypothesis.given(strategy)
    def draw(value):
        found.add(value)

    draw()
    return found & NUMBERS


def test_drawn_integers_do_not_prefer_source_constants(sources):
    assert met(st.integers(0, 2**32 - 1))
    assert not met(integers(0, 2**32 - 1))
