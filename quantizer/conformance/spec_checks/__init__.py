"""Tests the declarations of a spec or platform file: keys that nothing reads, declarations that no case reaches."""
