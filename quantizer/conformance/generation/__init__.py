"""From a spec to cases: choices, covering arrays, data."""
