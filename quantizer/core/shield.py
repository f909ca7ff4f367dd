"""Wraps a plugin's function. If it raises a skip, an exit or a refusal, its case fails."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, TypeVar

from quantizer.core.errors import FunctionError, RefusedError

F = TypeVar("F", bound=Callable[..., Any])
_STEER = ("_pytest", "hypothesis", "pytest", "unittest")
"""Packages with exceptions that skip, reject or end a test."""


def shielded(function: F) -> F:
    """Wrap *function*: an exception that would skip, refuse or end more than the case becomes a FunctionError.

    Ctrl-C passes, because the user caused it. Plain exceptions pass, too: the checks that run the function report them.
    """

    @functools.wraps(function)
    def call(*args: Any, **named: Any) -> Any:
        try:
            return function(*args, **named)
        except KeyboardInterrupt:
            raise
        except RefusedError as err:
            text = f"refused the case: {_first(err)}. Declare what it does not support: @operator(..., unsupported=...)"
            raise FunctionError(text).with_traceback(err.__traceback__) from None
        except BaseException as err:
            # SystemExit and the like are no Exceptions
            if isinstance(err, Exception) and not _steers(err):
                raise
            raise FunctionError(f"{type(err).__name__}: {_first(err)}").with_traceback(err.__traceback__) from None

    return call  # type: ignore[return-value]


def is_from_shielded(err: BaseException) -> bool:
    """Return whether a shielded function raised *err*."""
    place = err.__traceback__
    while place is not None:
        if place.tb_frame.f_code.co_filename == __file__:
            return True
        place = place.tb_next
    return False


def _steers(err: Exception) -> bool:
    return any(kind.__module__.partition(".")[0] in _STEER for kind in type(err).__mro__)


def _first(err: BaseException) -> str:
    """Return the first line of the message of *err*, without the full stop."""
    return (str(err).splitlines() or ["nothing said"])[0].rstrip(".")
