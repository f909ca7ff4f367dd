"""What an engine does, inferred: hypotheses in the platform language, and questions on which they differ."""
