"""A failing case: it is shrunk, shown, and written to files that replay it."""
