"""Checks for packages that some commands need in addition to the core's."""

from __future__ import annotations

from quantizer.core.errors import UnsupportedError
from quantizer.core.wording import to_install


def require_onnx() -> None:
    """Raise UnsupportedError with the command that installs onnx, if it is not installed."""
    try:
        import onnx
    except ImportError:
        raise UnsupportedError(f"onnx is not installed: {to_install('onnx')}.") from None
    # the import is only a test; a use keeps linters from calling it unused
    assert onnx
