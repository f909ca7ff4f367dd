"""What a run asks for: options, profile, readings, known failures, and the session that loads what they name."""
