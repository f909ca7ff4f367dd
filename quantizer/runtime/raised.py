"""Formats an exception of a function under test as one line."""

from __future__ import annotations

import sysconfig
import traceback
from pathlib import Path

import numpy as np
import torch

import quantizer
from quantizer.core.errors import EngineError, QuantizerError
from quantizer.core.wording import shown_path

_OURS = tuple(Path(str(module.__file__)).parent for module in (quantizer, torch, np))
"""Folders whose lines in a traceback do not belong to a plugin."""


def raised(err: BaseException) -> str:
    """Return the error that a function under test raised, and the last line of a plugin in its traceback."""
    first = str(err).splitlines()[0] if str(err) else ""
    kind = "" if isinstance(err, QuantizerError) else f"{type(err).__name__}: "
    # its text is from another process: the traceback here shows only our own lines
    if isinstance(err, EngineError):
        return f"{kind}{first}"
    frames = [frame for frame in traceback.extract_tb(err.__traceback__) if not _is_ours(frame.filename)]
    return f"{kind}{first}" + (f" ({shown_path(Path(frames[-1].filename))}:{frames[-1].lineno})" if frames else "")


def failed(err: BaseException) -> str:
    """Return a sentence that says how a function under test failed; the text of an EngineError already is one."""
    return raised(err) if isinstance(err, EngineError) else f"raised {raised(err)}"


def _is_ours(filename: str) -> bool:
    """Return whether a file belongs to this package, to Python, or to a library that plugins use."""
    path = Path(filename)
    # site-packages lies inside the folder of the standard library
    standard = path.is_relative_to(sysconfig.get_path("stdlib")) and "site-packages" not in path.parts
    return standard or any(path.is_relative_to(folder) for folder in _OURS)
