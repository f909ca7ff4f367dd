"""How numbers are rounded, quantized, requantized and summed exactly.

Importing this package selects MKL's code branch that exists on every processor, before anything here computes.
"""

from lazy_loader import attach_stub

from quantizer.numerics.mkl import pin

pin()
__getattr__, __dir__, __all__ = attach_stub(__name__, __file__)
