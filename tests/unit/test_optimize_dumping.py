"""Tensors that a run writes as .npy: types that numpy does not have, and different names that give the same file name."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from test_moving_layers import SHAPE, layer, optimized, source, values

from quantizer.cli import main
from quantizer.optimize.dumping import LONGEST_NAME
from tests.unit.one_layer import noise, ran

WHERE = ("output_dir = out", "dump = true", "dump_dir = dump")


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def test_layers_in_bfloat16_are_written_in_float32(tmp_path: Path) -> None:
    weights = noise(3, 6)
    given = {"weights": weights, "biases": noise(3)}
    cfg = dict(line.split(" = ") for line in (*WHERE, "trigger_float_op = bfloat16_preferred!"))
    ran(tmp_path, "FullyConnected", [[noise(2, 6)]], [(2, 3)], "num_output=3\n", given, **cfg)
    assert main(["optimize", "--cfg", "opt.cfg"]) == 0
    (path,) = Path("dump/quant").glob("*_weights.npy")
    found = np.load(path)
    assert found.dtype == np.float32
    assert np.array_equal(found, torch.from_numpy(weights).bfloat16().float().numpy())


@pytest.mark.parametrize("names", [("a/b", "a_b", "a b"), ("t" * 250 + "1", "t" * 250 + "2", "t" * 250 + "3")])
def test_each_tensor_has_its_own_file(tmp_path: Path, names: tuple[str, ...]) -> None:
    tops = dict.fromkeys(names, (2, 2, 4))
    layers = [source(), layer(1, "Split", {"x": SHAPE}, tops, "axis=1", "splits=[2,2,2]")]
    optimized(tmp_path, layers, "x", ",".join(names), [values()], *WHERE)
    assert main(["optimize", "--cfg", "opt.cfg"]) == 0
    paths = list(Path("dump/float32").glob("*_split_layer1_o0_*.npy"))
    assert max(len(path.stem) for path in paths) <= LONGEST_NAME
    wanted = sorted(values()[:, i : i + 2].tobytes() for i in (0, 2, 4))
    assert sorted(np.load(path).tobytes() for path in paths) == wanted
