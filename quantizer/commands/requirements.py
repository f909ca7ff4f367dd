"""Packages that some commands need besides those of the core."""

from __future__ import annotations

from quantizer.core.errors import UnsupportedError
from quantizer.core.wording import to_install


def require_onnx() -> None:
    """Raise UnsupportedError with the command that installs onnx, if it is not installed."""
    try:
        import onnx
    except ImportError:
        raise UnsupportedError(f"onnx is not installed: {to_install('onnx')}.") from None
    assert onnx
