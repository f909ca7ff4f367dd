"""Rotary positions: pairs of neighbours turned by the angle of their position."""

from __future__ import annotations

from quantizer.ir.graph import AttrValue
from quantizer.lang import arguments as a
from quantizer.lang.current import get_default_graph, operator
from quantizer.lang.errors import LangError
from quantizer.lang.graph import Result
from quantizer.lang.tensor import Tensor

PLACES = {3: 1, 4: 2, 5: 3}
"""Rank of the input -> the axis of positions; with is_permute_optimize it is axis 1 for rank 4."""


@operator("vision")
def rope(
    input: Tensor,
    weight0: Tensor,
    weight1: Tensor,
    is_permute_optimize: bool = False,
    mul1_round_mode: str = "half_up",
    mul2_round_mode: str = "half_up",
    add_round_mode: str = "half_up",
    mul1_shift: int | None = None,
    mul2_shift: int | None = None,
    add_shift: int | None = None,
    mul1_saturation: bool = True,
    mul2_saturation: bool = True,
    add_saturation: bool = True,
    out_name: str | None = None,
) -> Tensor:
    """Rotate each pair of neighbours along the last axis: (-x1, x0) * weight0 + (x0, x1) * weight1.

    weights: coefficients [places, last axis], sines and cosines. Codes are whole numbers without zero points: each
    product is times 2**mul_shift, rounded, saturated in twice the bits; the sum times 2**add_shift, in the result's
    type. It always saturates, regardless of the saturation arguments, as the original's simulator does.
    """
    a.tensor("input", input, a.FLOATS_AND_CODES, tuple(PLACES))
    optimized = a.boolean("is_permute_optimize", is_permute_optimize)
    if optimized and len(input.shape) != 4:
        raise LangError(f"is_permute_optimize: input has shape {list(input.shape)}: must have 4 axes.")
    place = 1 if optimized else PLACES[len(input.shape)]
    wanted = (input.shape[place], input.shape[-1])
    if wanted[1] % 2:
        raise LangError(f"input has shape {list(input.shape)}: the last axis must hold pairs.")
    graph = get_default_graph()
    shape = tuple(size if axis in (place, len(input.shape) - 1) else 1 for axis, size in enumerate(input.shape))
    for argument, weight in (("weight0", weight0), ("weight1", weight1)):
        if a.coefficient(argument, weight, (input.dtype,)).shape not in (wanted, shape):
            raise LangError(f"{argument} has shape {list(weight.shape)}: must be {list(wanted)}.")
    for weight in (weight0, weight1):
        # with axes of size 1, so that they broadcast to the input
        graph.reshape(weight, shape)
    shifts = {"mul1": mul1_shift, "mul2": mul2_shift, "add": add_shift}
    modes = {"mul1": mul1_round_mode, "mul2": mul2_round_mode, "add": add_round_mode}
    kept = {"mul1": mul1_saturation, "mul2": mul2_saturation, "add": add_saturation}
    attrs: dict[str, AttrValue] = {"is_permute_optimize": optimized}
    for step, shift in shifts.items():
        attrs[f"{step}_shift"] = 0 if shift is None else a.integer(f"{step}_shift", shift, -31, 31)
        attrs[f"{step}_round_mode"] = a.rounding(f"{step}_round_mode", modes[step])
        attrs[f"{step}_saturation"] = a.boolean(f"{step}_saturation", kept[step])
    return graph.add("top.Rope", [input, weight0, weight1], attrs, Result(input.dtype), out_name=out_name)[0]
