"""Selects and runs the checks of a trial, settles their verdicts, and adds them up to records."""
