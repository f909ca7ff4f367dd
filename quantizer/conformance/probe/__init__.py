"""Infers the arithmetic of an engine: hypotheses in the platform language, and questions on which they differ."""
