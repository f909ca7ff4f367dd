"""From a spec to verdicts."""
