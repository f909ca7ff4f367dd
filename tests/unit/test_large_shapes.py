"""What a file declares and no memory holds is refused before it is made."""

from __future__ import annotations

from pathlib import Path

import pytest
from test_moving_layers import SHAPE, layer, optimized, source, values

from quantizer.core.errors import GraphError

FAR = 2_000_000_000
PADDED = (SHAPE[0], SHAPE[1] + FAR, SHAPE[2] + FAR)
PADS = f"pads=[[0,0],[0,{FAR}],[0,{FAR}]]"
LARGE = (99999, 99999, 3)
TILED = (SHAPE[0], SHAPE[1] * 100000, SHAPE[2] * 100000)


@pytest.mark.parametrize(
    ("layers", "said"),
    [
        ([source(shape=LARGE), layer(1, "Activation", {"x": LARGE}, {"y": LARGE}, "method=RELU")], r"shape \[99999, 99999, 3\] of 4 bytes"),
        ([source(shape=LARGE), layer(1, "Crop", {"x": LARGE}, {"y": (1, 2, 3)}, "crops=[[0,1],[0,2],[0,3]]")], "'layer1': Crop: shape"),
        ([source(shape=LARGE), layer(1, "Slice", {"x": LARGE}, {"y": (1, 2, 3)}, "begin=[0,0,0]", "end=[1,2,3]", "strides=[1,1,1]")], "input 'x': shape"),
        ([source(), layer(1, "Pad", {"x": SHAPE}, {"y": SHAPE}, "mode=EDGE", PADS)], "'layer1': Pad: pads: .* makes shape"),
        ([source(), layer(1, "Pad", {"x": SHAPE}, {"y": SHAPE}, "mode=CONSTANT", "constant_value=0", PADS)], "'layer1': pad: shape"),
        ([source(), layer(1, "Pad", {"x": SHAPE}, {"y": PADDED}, "mode=CONSTANT", "constant_value=0", PADS)], "'layer1': pad: shape"),
        ([source(), layer(1, "Tile", {"x": SHAPE}, {"y": TILED}, "repeats=[1,100000,100000]")], "'layer1': replicate: shape"),
    ],
    ids=["input", "cropped", "sliced", "pad_edge", "pad_constant", "pad_as_declared", "tile"],
)  # fmt: skip
def test_a_layer_with_too_large_tensors_is_refused(tmp_path: Path, layers: list[str], said: str) -> None:
    with pytest.raises(GraphError, match=said) as caught:
        optimized(tmp_path, layers, "x", "y", [values()])
    assert "more than 2147483648 bytes" in str(caught.value)
