"""Plain data types that all other packages use: specs, platforms, cases, verdicts, records. No torch, no pytest."""

from lazy_loader import attach_stub

__getattr__, __dir__, __all__ = attach_stub(__name__, __file__)
