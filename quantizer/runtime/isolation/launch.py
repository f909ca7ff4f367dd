"""Starts the plugin process.

This module imports no torch, so that the process can import torch while the judge does.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping

from quantizer.runtime.engines.child import Child, Limits
from quantizer.runtime.engines.process import environment

PATIENCE = 60.0
"""The time limit of one call, in seconds."""
MEMORY = 4.0
"""The memory limit of the process and its children, in gigabytes."""


def limits(patience: float = PATIENCE, gigabytes: float = MEMORY) -> Limits:
    """Return the limits of a process of plugins."""
    return Limits(patience=patience, memory=int(gigabytes * (1 << 30)))


def launch(limits: Limits, python: str = "", variables: Mapping[str, str] | None = None) -> Child:
    """Start a process in a new session, by Popen and never by fork.

    python: its interpreter, empty for ours; variables: added to our environment. With -P no file
    of the current folder hides one of Python's modules.
    """
    # a fork would copy torch's thread pools without their threads
    return Child([python or sys.executable, "-P", "-m", __package__], environment(variables), limits)
