"""Layers other than the recorded ones: products of transposed operands, and the rectifier that is cut at 6."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from quantizer.core.errors import GraphError
from quantizer.core.library import load_library
from quantizer.ir.formats import compass
from quantizer.ops import load_built_ins
from quantizer.optimize import steps
from quantizer.optimize.cfg import read_cfg
from quantizer.optimize.comparing import read_back
from quantizer.optimize.pickled_arrays import read_arrays
from quantizer.optimize.running import Runner
from quantizer.optimize.work import Work

load_built_ins()
LIBRARY = load_library()
ROOT = Path(__file__).parents[2] / "cases" / "reference" / "compass"


def quantized(tmp_path: Path, name: str, changes: dict[str, str], data: Path) -> Work:
    """Return the work of a recorded float IR with some of its text replaced, calibrated on other data."""
    source = ROOT / name / "ext"
    text = (source / "float.txt").read_text()
    for old, new in changes.items():
        assert old in text
        text = text.replace(old, new)
    (tmp_path / "float.txt").write_text(text)
    given = dict(line.split(" = ") for line in (source / "opt.cfg").read_text().splitlines()[1:])
    given |= {"graph": str(tmp_path / "float.txt"), "bin": str(source / "float.bin"), "calibration_data": str(data)}
    (tmp_path / "opt.cfg").write_text("[Common]\n" + "".join(f"{key} = {value}\n" for key, value in given.items()))
    return steps.quantized(read_cfg(tmp_path / "opt.cfg"), LIBRARY)


def written(work: Work) -> str:
    text, _ = compass.to_bytes(compass.foreign(work.quantized_graph, LIBRARY.specs))
    return text


@pytest.mark.parametrize("transposed", [(False, True), (True, False), (True, True)])
def test_a_transposed_product_has_the_codes_of_the_recorded_one(tmp_path: Path, transposed: tuple[bool, bool]) -> None:
    source = ROOT / "matmul" / "ext"
    arrays = list(read_arrays(source / "calib.npy").values())
    changes = {}
    for place, (key, swap) in enumerate(zip("ab", transposed, strict=True)):
        if swap:
            shape = arrays[place].shape[1:]
            arrays[place] = arrays[place].swapaxes(1, 2)
            changes |= {
                f"trans_{key}=false": f"trans_{key}=true",
                f"[1,{shape[0]},{shape[1]}]": f"[1,{shape[1]},{shape[0]}]",
            }
    np.savez(tmp_path / "calib.npz", *arrays)
    work = quantized(tmp_path, "matmul", changes, tmp_path / "calib.npz")
    plain = {line for line in (source / "quant.txt").read_text().splitlines() if "shape" not in line}
    assert plain - set(written(work).splitlines()) == {
        f"trans_{k}=false" for k, swap in zip("ab", transposed, strict=True) if swap
    }
    recorded = np.load(source / "ref.npz")
    text, blob = compass.to_bytes(compass.foreign(work.quantized_graph, LIBRARY.specs))
    for graph in (work.quantized_graph, read_back(text, blob, LIBRARY)):
        runner, params = (
            Runner(LIBRARY.specs, LIBRARY.platform("compass").quantizer, 1),
            [graph.tensor(n).qparams for n in graph.inputs],
        )
        for batch in range(3):
            feeds = {}
            for place, (name, swap) in enumerate(zip(graph.inputs, transposed, strict=True)):
                codes = torch.from_numpy(recorded[f"b{batch}_q_in{place}"]).long()
                own = params[place]
                assert own is not None
                feeds[name] = ((codes.mT if swap else codes) - own.zero_point) * own.scale
            (codes,) = runner.outputs(graph, feeds)
            assert np.array_equal(codes.numpy(), recorded[f"b{batch}_q_out0"])


def test_a_product_must_state_its_transposition(tmp_path: Path) -> None:
    with pytest.raises(GraphError, match="MatMul without trans_b: write trans_b=true"):
        quantized(tmp_path, "matmul", {"trans_b=false\n": ""}, ROOT / "matmul" / "ext" / "calib.npy")


def test_relu6_equals_a_relu_with_output_range_to_6(tmp_path: Path) -> None:
    """RELU6 in integers is max(0, .) alone; the 6 comes from the range of its output (facts of Compass)."""
    values = np.load(ROOT / "act_relu" / "ext" / "calib.npy") * 3
    np.save(tmp_path / "calib.npy", values)
    work = quantized(tmp_path, "act_relu", {"method=RELU": "method=RELU6"}, tmp_path / "calib.npy")
    graph = work.quantized_graph
    assert "method=RELU6" in written(work)
    assert "layer_top_scale=[42.5]" in written(work)
    (layer,) = graph.nodes
    (mantissa,), (shift,) = ([layer.extra[key]] for key in ("scale_value", "shift_value"))
    steps_in = np.float32(255) / np.float32(2 * np.abs(values).max())
    codes = np.clip(np.rint(values[:1] * steps_in), -128, 127)
    wanted = np.clip(np.rint(np.maximum(codes, 0) * float(str(mantissa)) * 2.0 ** -float(str(shift))), 0, 255)
    (got,) = work.runs.outputs(graph, {graph.inputs[0]: torch.from_numpy(values[:1])})
    assert np.array_equal(got.numpy(), wanted)
    (real,) = work.runs.outputs(work.float_graph, {graph.inputs[0]: torch.from_numpy(values[:1])})
    assert float(real.max()) == 6.0
