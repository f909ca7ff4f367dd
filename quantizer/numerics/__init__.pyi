from .parameters import default_parameters
from .qparams import Bounds, Constant, Parameters, QParams, Rescale, Slope, Staged, Table
from .quantize import centred, dequantize
from .requantize_accumulator import requantize_each_term, requantize_mean, requantize_reduction, requantize_terms
from .request import Request
from .rounding import divide, round_tensor, shift_right
from .tables import full_table, interpolated_table, lookup, tabulated

__all__ = [
    "Bounds",
    "Constant",
    "Parameters",
    "QParams",
    "Request",
    "Rescale",
    "Slope",
    "Staged",
    "Table",
    "centred",
    "default_parameters",
    "dequantize",
    "divide",
    "full_table",
    "interpolated_table",
    "lookup",
    "requantize_each_term",
    "requantize_mean",
    "requantize_reduction",
    "requantize_terms",
    "round_tensor",
    "shift_right",
    "tabulated",
]
