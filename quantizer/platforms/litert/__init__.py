"""LiteRT under three resolvers: reference kernels, built-in kernels and XNNPACK."""
