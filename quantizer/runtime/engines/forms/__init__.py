"""Forms of models that several systems can run. The gate lowers cases to a form; a system only runs it."""
