"""The setup of a run: options, profile, readings, known failures, and the session that loads them."""
