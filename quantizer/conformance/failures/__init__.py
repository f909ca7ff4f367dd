"""A failing case: made small, shown, and written as files that replay it."""
