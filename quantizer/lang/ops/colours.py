"""Conversion of video colours to red, green and blue."""

from __future__ import annotations

from quantizer.lang import arguments as a
from quantizer.lang.current import get_default_graph, operator
from quantizer.lang.errors import LangError
from quantizer.lang.graph import Result
from quantizer.lang.tensor import Tensor

SOURCES, TARGETS = (0, 1, 2, 3), (4, 5)
"""Numbers of formats: YUV420P as YU12 and YV12, NV12, NV21; RGB, BGR."""
FORMULAS = ("_601_limited", "_601_full")
ROUNDINGS = ("HalfAwayFromZero", "HalfUp", "HalfToEven")


@operator("arrange")
def yuv2rgb(
    inputs: Tensor,
    src_format: int,
    dst_format: int,
    ImageOutFormatAttr: str,  # noqa: N803
    formula_mode: str,
    round_mode: str,
    out_name: str | None = None,
) -> Tensor:
    """Return bytes [..., 3, h, w] of colours for bytes [..., 3 h / 2, w]: brightness, then colours of 2 x 2 pixels.

    src_format: 0 is YU12 (u, then v), 1 YV12 (v, then u), 2 NV12 (u and v in turn), 3 NV21 (v and u); dst_format: 4
    RGB, 5 BGR.
    """
    a.tensor("inputs", inputs, ("uint8",), range(2, 6))
    rows, width = inputs.shape[-2:]
    if rows % 3 or rows // 3 * 2 % 2 or width % 2:
        raise LangError(f"inputs has shape {list(inputs.shape)}: must end in 3 h / 2 rows of w, h and w even.")
    a.one_of("ImageOutFormatAttr", ImageOutFormatAttr, ("UINT8",))
    attrs = {
        "src_format": a.one_of("src_format", src_format, SOURCES),
        "dst_format": a.one_of("dst_format", dst_format, TARGETS),
        "image_format": "UINT8",
        "formula_mode": a.one_of("formula_mode", formula_mode, FORMULAS),
        "round_mode": a.one_of("round_mode", round_mode, ROUNDINGS),
    }
    return get_default_graph().add("top.Yuv2rgbFormula", [inputs], attrs, Result("uint8"), out_name=out_name)[0]
