"""Small graphs that engines fuse: cases of them, our own composition, and what rewritten or optimized runs must equal."""
