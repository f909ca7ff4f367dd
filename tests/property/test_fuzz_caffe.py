"""Random Caffe networks equal the formulas of their layers in float64."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from caffe_networks import drawn_net

from quantizer.runtime.onnx_model import load_caffe_graph
from quantizer.runtime.torch_executor import TorchExecutor

NETWORKS, NIGHTLY = 12, 40


@pytest.mark.parametrize("block", range(2))
def test_a_network_computes_its_formulas(block: int, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    count = NETWORKS * (NIGHTLY if request.config.getoption("--op-profile", None) == "nightly" else 1)
    kinds: Counter[str] = Counter()
    for seed in range(block * count, (block + 1) * count):
        net = drawn_net(seed)
        if not net.text:
            continue
        graph, text = load_caffe_graph(*net.files(tmp_path)), "\n".join(net.text)
        made = TorchExecutor(graph, platform="fp32").forward({"x": net.x}, list(graph.outputs))
        for name, got in zip(graph.outputs, made, strict=True):
            exact = net.values[name]
            assert tuple(got.shape) == exact.shape, f"seed {seed}: {name}\n{text}"
            largest = max(1.0, *(float(np.abs(values).max()) for values in net.values.values()))
            assert np.allclose(got.double().numpy(), exact, rtol=1e-5, atol=2e-6 * largest), (
                f"seed {seed}: {name}\n{text}"
            )
        kinds.update(line.split('type: "')[1].split('"')[0] for line in net.text)
    assert len(kinds) >= 15, kinds
