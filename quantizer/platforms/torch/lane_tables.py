"""Tables of a function of one input as torch's element-wise kernels have them: of whole vectors, and of the rest of a row."""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor

from quantizer.numerics.float32_stages import dequantized_fused, in_vectors, inverse
from quantizer.numerics.parameters import Request, default_parameters
from quantizer.numerics.qparams import Parameters, QParams, Table
from quantizer.numerics.tables import Function

VECTOR, REST = "vector", "rest"
"""Names of the two tables of a function: as whole vectors compute it, and as the rest of a row does."""


def lane_tables(request: Request, f: Function) -> Parameters:
    """Return what the spec decides, and the two tables of *f* (float32 in, float32 out)."""
    parameters = default_parameters(request)
    (x,), (y,) = parameters.inputs.values(), parameters.outputs.values()
    codes = torch.arange(x.qmin, x.qmax + 1)
    scale, one_over = x.scale.float(), inverse(y.scale)
    vector = (f(dequantized_fused(codes, scale, x.zero_point)) * one_over).round() + y.zero_point
    plain = (codes - x.zero_point).float() * scale
    rest = (f(plain) * one_over + y.zero_point.float()).round()
    tables = {
        name: Table(entries.nan_to_num(nan=0.0).clamp(y.qmin, y.qmax).long(), x.qmin, 1, float(y.scale), y.dtype.bits)
        for name, entries in ((VECTOR, vector), (REST, rest))
    }
    return replace(parameters, tables=tables)


def looked_up(x: Tensor, parameters: Parameters) -> Tensor:
    """Return the entry of each code, of the table of its place in the row."""
    vector, rest = (parameters.tables[name] for name in (VECTOR, REST))
    place = x - vector.first
    within = in_vectors([tuple(x.shape)], parameters.platform.vector_lanes)
    return torch.where(within, vector.entries[place], rest.entries[place])


def code_of_bound(value: float, params: QParams) -> int:
    """Return the code of one float32 number as the scalar quantizer rounds it: the product, then the zero point, then to even."""
    real = torch.tensor(value, dtype=torch.float32) * inverse(params.scale) + params.zero_point.float()
    return int(real.round().double().clamp(params.qmin, params.qmax))
