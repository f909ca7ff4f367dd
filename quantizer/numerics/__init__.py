"""How numbers are rounded, quantized, requantized and summed exactly.

Importing this package puts MKL on the branch that every processor has, before anything here computes.
"""

from quantizer.numerics.mkl import pin

pin()
