"""Forms of models that several systems run; the gate lowers cases to them, a system only runs them."""
