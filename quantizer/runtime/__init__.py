"""Executors of graphs, engines, and the runtime API in PPQ's terms."""

from lazy_loader import attach_stub

__getattr__, __dir__, __all__ = attach_stub(__name__, __file__)
