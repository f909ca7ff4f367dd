"""The spec and the module that `quantizer spec new` writes for each kind. Both run unchanged."""

from __future__ import annotations

from typing import Literal

Kind = Literal["elementwise", "table", "custom", "fused"]

SPECS: dict[Kind, str] = {
    "elementwise": """\
# yaml-language-server: $schema=operator.schema.json
op: {name}
version: "1.0"
summary: Each element as it is; write here what {name} computes.

dims:
  shape: {{type: shape, rank: [1, 4], min: 1, max: 6}}

inputs:
  x: {{axes: shape}}
outputs:
  y: {{}}

shape:
  y: shape

error_model: {{kind: movement}}
quantization: {{family: movement, outputs: {{y: same_as(x)}}}}

tiling:
  "*": {{rule: independent}}

oracle: torch.clone
""",
    "table": """\
# yaml-language-server: $schema=operator.schema.json
op: {name}
version: "1.0"
summary: Hyperbolic tangent of each element; write here what {name} computes.

dims:
  shape: {{type: shape, rank: [1, 4], min: 1, max: 6}}

inputs:
  x: {{axes: shape}}
outputs:
  y: {{min: -1, max: 1}}

shape:
  y: shape

# monotone: rises or falls everywhere. Of a function that turns: piecewise_monotone, with its critical_points.
error_model: {{kind: monotone}}
quantization: {{family: table}}

tiling:
  "*": {{rule: independent}}

data: [zeros, one_hot, corners, saturation, zero_point_extremes, small_integers, random]

examples:
  - id: every_code
    values: {{shape: [16, 17]}}
    data: every_code
    ranges: {{x: [-6.0, 6.0]}}

oracle: torch.tanh
""",
    "custom": """\
# yaml-language-server: $schema=operator.schema.json
op: {name}
version: "1.0"
# Write what {name} computes, and name a function that judges it.
summary: Each element as it is, in groups of channels.

dims:
  n: {{min: 1, max: 3, bins: {{one: {{max: 1}}, batch: {{min: 2}}}}}}
  c: {{multiple_of: groups, min: groups, max: 2 * groups}}
  h: {{min: 1, max: 5}}
  w: {{min: 1, max: 5}}

attrs:
  groups: {{min: 1, max: 4, default: 1, bins: {{one: {{max: 1}}, several: {{min: 2}}}}}}

inputs:
  x: {{axes: [n, c, h, w], spatial: true}}
outputs:
  y: {{axes: [n, c, h, w], spatial: true}}

shape:
  y: [n, c, h, w]

constraints:
  - {{require: groups >= 1, error: "groups={{groups}} must be at least 1"}}
  - {{require: groups < 1 or c % groups == 0, error: "groups={{groups}} must divide c={{c}}"}}

error_model: {{kind: movement}}
quantization: {{family: movement, outputs: {{y: same_as(x)}}}}

tiling:
  n: {{rule: independent}}
  h: {{rule: independent}}
  w: {{rule: independent}}

properties:
  - {{relation: equivariant, axis: n}}

examples:
  - id: one_pixel
    values: {{n: 1, c: 4, h: 1, w: 1, groups: 2}}

oracle: none
""",
    "fused": """\
# yaml-language-server: $schema=operator.schema.json
op: {name}
version: "1.0"
summary: SiLU of a gate, rounded to 16 bits, times a second operand; write here what {name} computes.

dims:
  shape: {{type: shape, rank: [1, 3], min: 1, max: 8}}

inputs:
  gate: {{axes: shape}}
  up: {{axes: shape}}
outputs:
  y: {{}}

shape:
  y: shape

error_model: {{kind: custom}}
quantization: {{family: gated_product}}

stages:
  act:
    value: silu(gate)
    bits: 16
    scale: max(abs(gate_low), abs(gate_high)) / 32767
  y:
    value: act * up

tiling:
  "*": {{rule: independent}}

oracle: none
""",
}
"""Kind -> the spec of a new operator. str.format inserts the name, so braces of YAML are doubled."""

MODULES: dict[Kind, str] = {
    "elementwise": '''\
"""{title}: each element as it is."""

from __future__ import annotations

from torch import Tensor

from quantizer.numerics import Parameters
from quantizer.ops import operator


@operator("{name}")
def reference(x: Tensor) -> Tensor:
    """Return the real values of the output."""
    return x.clone()


@operator("{name}")
def quantized(x: Tensor, *, parameters: Parameters) -> Tensor:
    """Return the codes of the output, which shares the parameters of the input."""
    return x.clone()
''',
    "table": '''\
"""{title}: a function of one input, which needs no integer code of its own."""

from __future__ import annotations

import torch
from torch import Tensor

from quantizer.ops import operator


@operator("{name}")
def reference(x: Tensor) -> Tensor:
    """Return the real values of the output."""
    return torch.tanh(x)


@operator("{name}")
def function(x: Tensor) -> Tensor:
    """Return what the table holds, in the float type in which the platform builds it."""
    return torch.tanh(x)
''',
    "custom": '''\
"""{title}: each element as it is, in groups of channels."""

from __future__ import annotations

from torch import Tensor

from quantizer.numerics import Parameters
from quantizer.ops import operator


@operator("{name}")
def reference(x: Tensor, *, groups: int) -> Tensor:
    """Return the real values of the output."""
    n, c, h, w = x.shape
    return x.reshape(n, groups, c // groups, h, w).reshape(n, c, h, w)


@operator("{name}")
def quantized(x: Tensor, *, parameters: Parameters, groups: int) -> Tensor:
    """Return the codes of the output, which shares the parameters of the input."""
    return x.clone()
''',
    "fused": '''\
"""{title}: SiLU of a gate, rounded, times a second operand, rounded."""

from __future__ import annotations

import torch
from torch import Tensor

from quantizer.numerics import Parameters, Staged, centred, round_tensor
from quantizer.ops import operator


@operator("{name}")
def reference(gate: Tensor, up: Tensor) -> Tensor:
    """Return the real values of the output."""
    return torch.nn.functional.silu(gate) * up


@operator("{name}")
def quantized(gate: Tensor, up: Tensor, *, parameters: Parameters) -> Staged:
    """Return the codes of the output, and show those of the stage that the spec declares."""
    act = first(centred(gate, parameters.inputs["gate"]), parameters)
    return Staged(second(act, centred(up, parameters.inputs["up"]), parameters), {{"act": act}})


def first(gate: Tensor, parameters: Parameters) -> Tensor:
    """Return the codes of stage act for the codes of the gate minus their zero point."""
    stage = parameters.stages["act"]
    real = torch.nn.functional.silu(gate.double() * parameters.inputs["gate"].scale)
    return round_tensor(real / stage.scale, parameters.platform.rounding).clamp(stage.qmin, stage.qmax).long()


def second(act: Tensor, up: Tensor, parameters: Parameters) -> Tensor:
    """Return the codes of the output: the product at its scale, rounded once, plus its zero point, saturated."""
    output = parameters.outputs["y"]
    ratio = parameters.stages["act"].scale * parameters.inputs["up"].scale / output.scale
    codes = round_tensor(act * up * ratio, parameters.platform.rounding).long() + output.zero_point
    return codes.clamp(output.qmin, output.qmax)
''',
}
"""Kind -> the module of a new operator."""
