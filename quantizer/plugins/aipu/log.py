"""OPT_DEBUG to OPT_FATAL on Python's logging; a `%` in a message is a character like any other."""

from __future__ import annotations

import logging
from typing import Any, NoReturn

from quantizer.core.errors import PluginError

LOGGER = logging.getLogger("quantizer.plugins.aipu")
_SEEN: set[tuple[int, str]] = set()


class FatalError(PluginError):
    """A plugin called OPT_FATAL."""


def _say(level: int, message: object, options: dict[str, Any]) -> None:
    text = str(message)
    if options.get("log_once"):
        if (level, text) in _SEEN:
            return
        _SEEN.add((level, text))
    # as an argument, so that a % in the text formats nothing
    LOGGER.log(level, "%s", text)


def OPT_DEBUG(message: object, *_: object, **options: Any) -> None:
    """Log for developers. `log_once` is Compass's option; the others (op_name, workflow_name, ...) have no effect."""
    _say(logging.DEBUG, message, options)


def OPT_INFO(message: object, *_: object, **options: Any) -> None:
    """Log information."""
    _say(logging.INFO, message, options)


def OPT_WARN(message: object, *_: object, **options: Any) -> None:
    """Log a warning."""
    _say(logging.WARNING, message, options)


def OPT_ERROR(message: object, *_: object, **options: Any) -> None:
    """Log an error; the run continues."""
    _say(logging.ERROR, message, options)


def OPT_FATAL(message: object, *_: object, **_options: Any) -> NoReturn:
    """Log and raise FatalError: the layer fails, and with it the case."""
    _say(logging.CRITICAL, message, {})
    raise FatalError(str(message))
