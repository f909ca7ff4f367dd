"""The operator functions, a module for each family."""
