"""The Compass Optimizer flow: from a float IR and a cfg file to a quantized IR."""
