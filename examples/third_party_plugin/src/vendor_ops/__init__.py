"""Operators of a vendor, written against quantizer's registry: importing the package registers them."""

from importlib.resources import files

from vendor_ops import log_sigmoid, relu, roll, vec_dot, weighted_sum

__all__ = ["SPECS", "log_sigmoid", "relu", "roll", "vec_dot", "weighted_sum"]

SPECS = files(__name__) / "specs"
"""Where quantizer finds the specs of these operators."""
