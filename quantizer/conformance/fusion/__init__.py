"""Small graphs that engines fuse: cases, our node-by-node run, comparison with rewritten or optimized runs."""
