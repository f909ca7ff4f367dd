"""PyTorch, with its engines for quantized operators: x86, FBGEMM and QNNPACK."""
