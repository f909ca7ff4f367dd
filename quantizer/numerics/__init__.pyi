from .finish import finish_each, finish_mean, finish_reduced, finish_sum
from .parameters import Request, default_parameters
from .qparams import Bounds, Constant, Parameters, QParams, Rescale, Slope, Staged, Table
from .quantize import centred, dequantize
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
    "finish_each",
    "finish_mean",
    "finish_reduced",
    "finish_sum",
    "full_table",
    "interpolated_table",
    "lookup",
    "round_tensor",
    "shift_right",
    "tabulated",
]
