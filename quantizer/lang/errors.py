"""Errors of graphs that are built with `quantizer.lang`."""

from __future__ import annotations

from quantizer.core.errors import GraphError


class LangError(GraphError):
    """A call of an operator function breaks a rule.

    The message names function, argument, value and rule; the graph is unchanged.
    """

    def __init__(self, message: str, function: str | None = None) -> None:
        super().__init__(message)
        self.function = function
        """The operator function that the message names."""
