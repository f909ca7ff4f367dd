"""Expected parameters: second implementations that share nothing with `numerics`."""
