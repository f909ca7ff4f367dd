"""One case on one engine, with all that checks read of it."""
