"""Tests the declarations of a spec or platform file: finds keys that nothing reads and declarations without a case."""
