"""From an ONNX file to Compass IR and through the Compass flow."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
import torch
from onnx import helper
from test_onnx_registry_form import model_of, without_choices

from quantizer.cli import main
from quantizer.ir.channels_last import channels_last
from quantizer.ir.formats import compass
from quantizer.ir.formats.onnx import from_model
from quantizer.runtime.executor import execute
from quantizer.runtime.onnx.kernels import specs
from quantizer.runtime.onnx.registry_form import registry_form
from quantizer.runtime.onnx_backend import QuantizerBackend


def whole(shape: tuple[int, ...], seed: int) -> np.ndarray:
    """Return whole numbers, whose products add up exactly in float32 whatever the order."""
    return torch.randint(-4, 5, shape, generator=torch.Generator().manual_seed(seed)).float().numpy()


def network(batch: int | str = 2) -> onnx.ModelProto:
    shapes = {"w": (4, 3, 3, 3), "b": (4,), "k": (4, 1, 1), "g": (5, 128)}
    constants = {name: whole(shape, seed) for seed, (name, shape) in enumerate(shapes.items())}
    nodes = [
        helper.make_node("Conv", ["x", "w", "b"], ["c"], pads=[1, 1, 1, 1]),
        helper.make_node("Relu", ["c"], ["r"]),
        helper.make_node("MaxPool", ["r"], ["p"], kernel_shape=[2, 2], strides=[2, 2]),
        helper.make_node("Add", ["p", "k"], ["a"]),
        helper.make_node("Concat", ["a", "p"], ["cc"], axis=1),
        helper.make_node("Flatten", ["cc"], ["f"]),
        helper.make_node("Gemm", ["f", "g"], ["y"], transB=1),
    ]
    return model_of(nodes, {"x": [batch, 3, 8, 8]}, ["y"], constants)


@pytest.mark.parametrize("seed", range(12))
def test_channels_last_form_gives_the_same_numbers(seed: int) -> None:
    builder, model = without_choices(seed)
    feeds = {"x": torch.from_numpy(builder.whole(*builder.shape))}
    made = registry_form(from_model(model), feeds)
    moved = channels_last(made, specs())
    spatial = [node for node in moved.nodes if any(item.spatial for item in specs()[node.op].inputs.values())]
    assert all(node.order == "channels_last" for node in spatial)
    expected, found = (execute(graph, feeds, specs()).values for graph in (made, moved))
    for name in made.outputs:
        assert torch.equal(expected[name], found[name])


def test_a_chain_of_layers_is_transposed_once_on_each_side() -> None:
    moved = channels_last(registry_form(from_model(network())), specs())
    assert [node.op for node in moved.nodes] == [
        "transpose",
        "conv2d",
        "relu",
        "max_pool2d",
        "add",
        "concat",
        "transpose",
        "reshape",
        "fully_connected",
    ]


def test_a_written_network_reads_back_the_same() -> None:
    made = registry_form(from_model(network()))
    text, blob = compass.to_bytes(compass.foreign(channels_last(made, specs()), specs()))
    again = compass.native(compass.from_bytes(text, blob), specs())
    x = torch.from_numpy(whole((2, 3, 8, 8), 9))
    first, second = (execute(graph, {graph.inputs[0]: x}, specs()) for graph in (made, again))
    assert torch.equal(first.values["y"], second.values[again.outputs[0]])


def test_an_onnx_file_goes_through_the_flow(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    onnx.save(network("n"), "net.onnx")
    assert main(["onnx", "compass", "net.onnx", "--text", "f.txt", "--bin", "f.bin", "--shape", "x=1,3,8,8"]) == 0
    data = whole((8, 3, 8, 8), 9)
    np.save("data.npy", data)
    np.save("labels.npy", QuantizerBackend.prepare(network("n")).run([data])[0])
    fields = {
        "graph": "f.txt",
        "bin": "f.bin",
        "model_name": "net",
        "dataset": "NumpyDataset",
        "calibration_data": "data.npy",
        "calibration_batch_size": 4,
        "calibration_strategy_for_activation": "extrema",
        "metric": "CosDistanceMetric",
        "data": "data.npy",
        "label": "labels.npy",
        "output_dir": "out",
    }
    Path("opt.cfg").write_text("[Common]\n" + "".join(f"{k} = {v}\n" for k, v in fields.items()))
    assert main(["optimize", "--cfg", "opt.cfg"]) == 0
    said = capsys.readouterr().out
    scores = [float(line.rsplit(" ", 1)[1]) for line in said.splitlines() if " metric: " in line]
    assert scores[1] == 1.0
    assert 0.99 < scores[0] < 1.0
    codes = compass.read("out/net_o.txt", "out/net_o.bin")
    assert {t.dtype.name for t in codes.tensors.values() if t.name == "c#last"} <= {"int8", "uint8"}


def test_an_invalid_shape_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    onnx.save(network("n"), tmp_path / "net.onnx")
    files = ["--text", str(tmp_path / "f.txt"), "--bin", str(tmp_path / "f.bin")]
    assert main(["onnx", "compass", str(tmp_path / "net.onnx"), *files, "--shape", "x=1,-3"]) == 2
    assert "--shape=x=1,-3: write an input and its sizes" in capsys.readouterr().err
    for shape, words in (
        ("xx=1,3,8,8", "--shape=xx=...: no such input. Did you mean 'x'?"),
        ("x=9999999,9999999,9999999", "--shape=x=...: shape [9999999, 9999999, 9999999] of 4 bytes a value: more than"),
    ):
        given = ["--shape", "x=1,3,8,8", "--shape", shape]
        assert main(["onnx", "compass", str(tmp_path / "net.onnx"), *files, *given]) == 2
        assert words in capsys.readouterr().err
    assert not (tmp_path / "f.txt").exists()
