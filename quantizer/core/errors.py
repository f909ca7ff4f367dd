"""Errors that a user can cause. Each message names the place, the value, the violated rule and the remedy."""

from __future__ import annotations

from quantizer.core.wording import told


class QuantizerError(Exception):
    """Base class: something that the user can correct; never raised for a bug in this package.

    Its text may quote foreign names, which are escaped so that they neither control a terminal nor act as a CI command.
    """

    def __str__(self) -> str:
        return told(super().__str__())


class SpecError(QuantizerError):
    """A spec, scheme or platform file violates its schema."""


class ConstraintError(QuantizerError):
    """A graph breaks a constraint that the operator's spec declares."""

    def __init__(self, op: str, index: int, message: str) -> None:
        super().__init__(f"{op}: {message}")
        self.op = op
        self.index = index


class GraphError(QuantizerError):
    """A graph is not well formed: dangling tensor, cycle, wrong shape, impossible parameters."""


class FixError(QuantizerError):
    """A fixed-point configuration (quantizer.nn) is invalid, or does not belong to its module."""


class FormatError(QuantizerError):
    """A file does not follow its format."""


class CaseError(QuantizerError):
    """A stored case cannot be read or no longer validates."""


class PluginError(QuantizerError):
    """A plugin cannot be loaded, or breaks the contract of the registry."""


class UnsupportedError(QuantizerError):
    """An operator, scheme, platform or engine does not support the request."""


class RefusedError(QuantizerError):
    """A real engine has no way to express a case; the message says why. Counted as inconclusive.

    If a function of a plugin raises it, the case fails: a plugin must declare unsupported cases at registration.
    """


class FunctionError(QuantizerError):
    """A function of a plugin tried to skip or refuse its case, or to end the process."""


class EngineError(QuantizerError):
    """A real engine raised, crashed or hung on a case that it should run."""
