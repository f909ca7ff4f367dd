"""Estimators that turn observed values into a range."""
