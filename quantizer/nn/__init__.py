"""Fixed-point torch modules for training: parameters, activations, buffers and gradients on grids (NICS-fix).

`Conv2d_fix`, `Linear_fix`, `BatchNorm1d_fix`, `BatchNorm2d_fix` and whatever `register_fix_module` adds, `ConvBN_fix`,
`Activation_fix`; `FixTopModule` for whole networks; `quantize_cfg` and `quantize` for one tensor; `to_graph` for a
trained network as a quantized graph.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from quantizer.core.wording import suggestion
from quantizer.nn.compass_file import compass_layers
from quantizer.nn.config import FixConfig, default_fix_cfg
from quantizer.nn.conv_bn import ConvBN_fix
from quantizer.nn.convert import run_graph, to_graph
from quantizer.nn.datum import quantize, quantize_cfg
from quantizer.nn.fixed import Fixed, LiveConfig
from quantizer.nn.methods import (
    FIX_AUTO,
    FIX_FIXED,
    FIX_NONE,
    RANGE_3SIGMA,
    RANGE_MAX,
    RANGE_MAX_TENPERCENT,
    RANGE_SWEEP,
    QuantizeMethod,
    RangeMethod,
)
from quantizer.nn.modules import REGISTERED, Activation_fix, register_fix_module
from quantizer.nn.top import FixTopModule

if TYPE_CHECKING:
    from torch import nn

__all__ = [
    "FIX_AUTO",
    "FIX_FIXED",
    "FIX_NONE",
    "RANGE_3SIGMA",
    "RANGE_MAX",
    "RANGE_MAX_TENPERCENT",
    "RANGE_SWEEP",
    "Activation_fix",
    "ConvBN_fix",
    "FixConfig",
    "FixTopModule",
    "Fixed",
    "LiveConfig",
    "QuantizeMethod",
    "RangeMethod",
    "compass_layers",
    "default_fix_cfg",
    "quantize",
    "quantize_cfg",
    "register_fix_module",
    "run_graph",
    "to_graph",
]


def __getattr__(name: str) -> type[nn.Module]:
    if name in REGISTERED:
        return REGISTERED[name]
    hint = ""
    if name.endswith("_fix"):
        hint = f" Call register_fix_module on {name.removesuffix('_fix')} first.{suggestion(name, REGISTERED, 'Known')}"
    raise AttributeError(f"quantizer.nn has no {name!r}.{hint}")


def __dir__() -> list[str]:
    return sorted({*__all__, *REGISTERED})
