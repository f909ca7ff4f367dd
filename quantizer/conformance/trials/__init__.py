"""One case on one engine, with everything that checks read from it."""
