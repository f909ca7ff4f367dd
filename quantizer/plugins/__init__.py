"""Finding and loading operators of others."""
