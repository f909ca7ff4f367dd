"""Bounds: which outputs a correct implementation may give, derived from parameters, never hard-coded."""

from __future__ import annotations

from quantizer.conformance.bounds.index import regret
from quantizer.conformance.bounds.interval import Interval, input_radius, vacuous
from quantizer.conformance.bounds.linear import Operand, bilinear, linear, movement_of, piecewise_bilinear
from quantizer.conformance.bounds.monotone import critical_points_between, monotone, piecewise_monotone
from quantizer.conformance.bounds.normalization import normalization
from quantizer.conformance.bounds.poles import between_poles, divide, log, power, reciprocal, rsqrt, sqrt, tan
from quantizer.conformance.bounds.reductions import euclidean, product
from quantizer.conformance.bounds.resize import resize_linear, resize_nearest
from quantizer.conformance.bounds.rounding import code_interval, rational_codes
from quantizer.conformance.bounds.set_valued import (
    UNDECIDED,
    compare,
    modulo,
    negate,
    one_hot,
    truth_interval,
    where,
)
from quantizer.conformance.bounds.softmax import log_softmax, softmax

__all__ = [
    "UNDECIDED",
    "Interval",
    "Operand",
    "between_poles",
    "bilinear",
    "code_interval",
    "compare",
    "critical_points_between",
    "divide",
    "euclidean",
    "input_radius",
    "linear",
    "log",
    "log_softmax",
    "modulo",
    "monotone",
    "movement_of",
    "negate",
    "normalization",
    "one_hot",
    "piecewise_bilinear",
    "piecewise_monotone",
    "power",
    "product",
    "rational_codes",
    "reciprocal",
    "regret",
    "resize_linear",
    "resize_nearest",
    "rsqrt",
    "softmax",
    "sqrt",
    "tan",
    "truth_interval",
    "vacuous",
    "where",
]
