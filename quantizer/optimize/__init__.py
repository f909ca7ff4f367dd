"""The Compass Optimizer flow: from a float IR and a cfg file to a quantized IR."""

from lazy_loader import attach_stub

__getattr__, __dir__, __all__ = attach_stub(__name__, __file__)
