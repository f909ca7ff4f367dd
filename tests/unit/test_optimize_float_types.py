"""The type in which real values go from layer to layer of the float graph, as the recorded runs show it."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from test_global_calibration import CONV, Network

POINT = {**CONV, "padding": (0, 0, 0, 0)}
SMALL = 2.0**-20


@pytest.mark.parametrize(("activation", "left"), [("none", 2.0**-40), ("relu", 0.0)])
def test_a_convolution_provides_on_float64_unless_it_is_rectified(tmp_path: Path, activation: str, left: float) -> None:
    """By hand: (1 + 2^-20)^2 = 1 + 2^-19 + 2^-40, whose last term float32 does not hold beside 1."""
    net = Network(tmp_path, torch.full((1, 1, 1, 1), 1.0 + SMALL))
    net.add(
        "conv2d",
        (1, 1, 1, 1),
        torch.full((1, 1, 1, 1), 1.0 + SMALL),
        torch.zeros(1),
        attrs=POINT,
        activation=activation,
    )
    net.add("reshape", (1, 1, 1, 1), attrs={"shape": (1, 1, 1, 1)})
    net.add("conv2d", (1, 1, 1, 1), torch.ones(1, 1, 1, 1), torch.tensor([-1.0 - 2 * SMALL]), attrs=POINT)
    work = net.quantized()
    found = {name: values for name, _, values in work.runs.forward(work.float_graph, {"x": net.data})}
    assert float(found["y2"]) == left
    assert float(found["y0"]) == 1.0 + 2 * SMALL
    assert {values.dtype for values in found.values()} == {torch.float32}
