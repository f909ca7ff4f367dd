"""From a spec to verdicts."""

from __future__ import annotations

from typing import Any


def __getattr__(name: str) -> Any:
    """Return `check_graph`, which is imported when it is asked for: it needs every floor below."""
    if name != "check_graph":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from quantizer.conformance.graph_check import check_graph

    return check_graph
