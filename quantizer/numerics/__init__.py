"""How numbers are rounded, quantized, requantized and summed exactly."""
