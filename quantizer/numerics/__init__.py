"""How numbers are rounded, quantized, requantized and summed exactly.

Importing this package puts MKL on the branch that every processor has, before anything here computes.
"""

from lazy_loader import attach_stub

from quantizer.numerics.mkl import pin

pin()
__getattr__, __dir__, __all__ = attach_stub(__name__, __file__)
