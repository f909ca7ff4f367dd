"""Small graphs that engines fuse: their cases, our node-by-node run, and comparison with rewritten or optimized runs."""
