"""The room of a small chip: its platform, the functions that it computes in its own way, and its simulator."""
