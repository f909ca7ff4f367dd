"""mvn_correction: ranges and bits around normalizations, restated from the formulas of the original."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from test_global_calibration import CONV, Network, drawn

from quantizer.core.errors import QuantizerError
from quantizer.optimize.work import Work


def net(folder: Path, *, relu: bool = True) -> Network:
    """Conv, and after it a rectifier or not; a normalization whose outputs are small beside what it reads."""
    made = Network(folder, 20 * drawn(16, 4, 4, 3))
    made.add("conv2d", (1, 4, 4, 6), drawn(6, 3, 3, 3, seed=2), drawn(6, seed=3), attrs=CONV)
    if relu:
        made.add("relu", (1, 4, 4, 6))
    return made.add("layer_norm", (1, 4, 4, 6), torch.ones(6), torch.zeros(6), attrs={"axis": 3, "epsilon": 1e-5})


def scale(work: Work, name: str) -> np.float32:
    params = work.quantized_graph.tensor(name).qparams
    assert params is not None
    assert params.steps is not None
    return np.float32(params.steps)


def bits(work: Work, name: str) -> int:
    return work.quantized_graph.tensor(name).dtype.bits


@pytest.mark.parametrize("alpha", [0.0, 0.01, 0.5, 2.0])
def test_the_step_before_a_norm(tmp_path: Path, alpha: float) -> None:
    """s = sqrt(s_x s_y) max(alpha, sqrt(s_x / s_y)) of the layer that keeps precision, here the convolution before the rectifier."""
    plain = net(tmp_path).quantized()
    found = net(tmp_path).quantized(f"global_calibration = mvn_correction[0,{alpha}]")
    conv, norm = plain.float_graph.order[0].outputs[0], plain.float_graph.order[-1].outputs[0]
    s_x, s_y = float(scale(plain, conv)), float(scale(plain, norm))
    assert s_x < s_y / 4
    wanted = s_x if alpha == 0 else max(alpha * np.sqrt(s_x * s_y), s_x)
    assert float(scale(found, conv)) == pytest.approx(wanted, rel=1e-6)
    assert (float(scale(found, conv)) > 1.5 * s_x) == (alpha in (0.5, 2.0))
    assert scale(found, norm) == scale(plain, norm)
    assert [bits(found, name) for name in (conv, norm)] == [8, 8]


@pytest.mark.parametrize(
    ("relu", "numbers", "wide"),
    [(True, "1", (16, 16, 16)), (False, "1", (16, 16)), (True, "1,1,0,0,12,8,32,8", (12, 12, 12))],
)
def test_more_bits_from_mode_1_on(tmp_path: Path, relu: bool, numbers: str, wide: tuple[int, ...]) -> None:
    """The convolution, what lies between, and the norm; the range keeps the narrow step over all 16 bits, as the original has it."""
    plain = net(tmp_path, relu=relu).quantized()
    found = net(tmp_path, relu=relu).quantized(f"global_calibration = mvn_correction[{numbers}]")
    names = [node.outputs[0] for node in plain.float_graph.order]
    assert tuple(bits(found, name) for name in names) == wide
    assert bits(found, "x") == 8
    s_x, s_y = float(scale(plain, names[0])), float(scale(plain, names[-1]))
    reach = 65535 / max(np.sqrt(s_x * s_y), s_x)
    span = found.ranges[names[0]]
    assert (span.low, span.high) == (pytest.approx(-reach / 2, rel=1e-6), pytest.approx(reach / 2, rel=1e-6))
    own: Any = found.settings[plain.float_graph.order[0].name]
    assert own["quantize_method_for_activation"] == "per_tensor_symmetric_restricted_range"
    assert own["multiplier_bits"] == wide[0]


def test_layers_out_of_scope_stay(tmp_path: Path) -> None:
    plain = net(tmp_path).quantized()
    found = net(tmp_path).quantized("global_calibration = mvn_correction[1]{nothing}")
    assert [bits(found, n.outputs[0]) for n in plain.float_graph.order] == [8, 8, 8]


def test_mvn_correction_with_bit_search_is_refused(tmp_path: Path) -> None:
    with pytest.raises(QuantizerError, match="mvn_correction chooses bits"):
        net(tmp_path).quantized("global_calibration = mvn_correction", "mixed_precision_auto_search = 1,0.1,L")
