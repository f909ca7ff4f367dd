"""What runs a case: our engine, and real ones in a process of their own."""
