"""The AIPUBuilder-style layer: the names that Compass operator plugins import, over our numerics and registry."""
