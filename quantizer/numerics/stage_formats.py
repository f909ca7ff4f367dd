"""Formats of a case's declared stages, for kernels that round more than once."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch

from quantizer.core.dtypes import integer
from quantizer.core.platforms import Platform
from quantizer.core.spec import Spec
from quantizer.core.stages import Stage, StageFormat, ends_of, stage_formats
from quantizer.numerics.qparams import QParams


def declared_stages(spec: Spec, platform: Platform) -> Mapping[str, Stage]:
    """Return the stages that *platform* declares for the operator, else its spec's; empty if it rounds once."""
    return platform.stages.get(spec.op, spec.stages)


def formats_of(
    spec: Spec, platform: Platform, bound: Mapping[str, Any], activation_bits: int, inputs: Mapping[str, QParams]
) -> dict[str, StageFormat]:
    """Return the format of each declared stage before the output; *inputs*: the parameters of the operands."""
    operands: dict[str, float] = {}
    for name, params in inputs.items():
        scale, zero = float(params.scale), int(params.zero_point)
        operands |= ends_of(name, scale, scale * (params.qmin - zero), scale * (params.qmax - zero))
    return stage_formats(declared_stages(spec, platform), bound, activation_bits, operands)


def stage_params(formats: Mapping[str, StageFormat]) -> dict[str, QParams]:
    """Return the same formats as parameters of codes: zero point 0."""
    return {
        name: QParams(
            integer(found.bits, signed=found.signed),
            torch.tensor(found.scale, dtype=torch.float64),
            torch.tensor(0),
            found.qmin,
            found.qmax,
        )
        for name, found in formats.items()
    }
