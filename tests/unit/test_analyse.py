"""Statistics against hand values, samples from files and seeds, and `quantizer analyse`."""

from __future__ import annotations

import io
import json
import math
import zipfile

import numpy as np
import onnx
import pytest
import torch
from test_onnx_compass import network as small_network
from test_onnx_compass import whole
from test_qdq import network, numbers, quantized

from quantizer.cli import main
from quantizer.conformance.models.graph_nodes import enclosure_ratios
from quantizer.core.errors import FormatError, GraphError
from quantizer.ir.formats.onnx import from_model
from quantizer.runtime.graph_statistics import Moments, parameter_analyse, statistical_analyse
from quantizer.runtime.integer import integer_graph
from quantizer.runtime.sample_data import read_batches, synthetic_batches

DATA = (6, 3, 8, 8)


@pytest.fixture
def model(tmp_path):
    onnx.save(small_network("n"), tmp_path / "net.onnx")
    return str(tmp_path / "net.onnx")


def test_moments_by_hand():
    """Of 0, 0, 0, 4: mean 1, variance 3, third central moment 6, fourth 21."""
    kept = Moments()
    kept.add(torch.tensor([0.0, 4.0]))
    kept.add(torch.tensor([0.0, 0.0]))
    found = kept.summary()
    assert (found.mean, found.low, found.high) == (1, 0, 4)
    assert found.deviation == math.sqrt(3)
    assert found.skewness == pytest.approx(6 / 3**1.5)
    assert found.kurtosis == pytest.approx(21 / 9 - 3)
    with pytest.raises(GraphError, match="empty"):
        Moments().summary()


def test_statistics_cover_every_computed_tensor():
    graph, batch = quantized(), [numbers(4, 3, 8, 8, seed=30)]
    rows = statistical_analyse(graph, [batch])
    assert [(r.operation, r.tensor, r.is_input) for r in rows][:5] == [
        ("conv", "x", True),
        ("conv", "c", False),
        ("relu", "c", True),
        ("relu", "r", False),
        ("conv2", "r", True),
    ]
    conv = rows[1]
    config = graph.node("conv").parameters.output_quantization_config[0]
    assert conv.noise.mean == pytest.approx(conv.quantized_values.mean - conv.float_values.mean, abs=1e-9)
    assert conv.noise.deviation < 4 * float(config.scale)
    assert rows[3].float_values.low == 0


def test_parameter_ranges_equal_those_of_the_constants():
    rows = {row.tensor: row for row in parameter_analyse(quantized())}
    assert set(rows) == {"w", "b", "v", "g"}
    w = network().tensor("w").data
    assert (rows["w"].low, rows["w"].high) == (float(w.min()), float(w.max()))
    assert rows["w"].smallest_scale < rows["w"].largest_scale
    assert rows["b"].largest_scale is None
    assert rows["g"].mean_size == pytest.approx(float(network().tensor("g").data.abs().mean()))


def test_only_damaged_integer_nodes_leave_their_enclosures():
    data = {"x": torch.from_numpy(whole((2, 3, 8, 8), 5))}
    graph = integer_graph(quantized(), inputs={"x": numbers(2, 3, 8, 8, seed=1)})
    rows = enclosure_ratios(graph, [data])
    assert {row.status for row in rows} == {"pass"}
    assert all(row.ratio <= 1 for row in rows)
    node = next(node for node in graph.nodes if node.op == "conv2d")
    rescale = node.parameters.rescale
    worse = type(node.parameters)(
        **{**vars(node.parameters), "rescale": type(rescale)(**{**vars(rescale), **damaged(rescale)})}
    )
    broken = graph.with_node(type(node)(**{**vars(node), "parameters": worse}))
    found = {row.name: row.status for row in enclosure_ratios(broken, [data])}
    assert found[node.name] == "fail"


def damaged(rescale):
    """Return the multiplier of a rescale a tenth too large, in the same form."""
    key = next(k for k in ("ratio", "factor", "mantissa") if isinstance(getattr(rescale, k, None), torch.Tensor))
    value = getattr(rescale, key)
    return {key: (value.double() * 1.1).to(value.dtype)}


def test_samples_of_a_file_are_batches_and_a_seed_gives_the_same_ones(tmp_path):
    graph = from_model(small_network("n"))
    values = whole(DATA, 3)
    np.save(tmp_path / "x.npy", values)
    np.savez(tmp_path / "x.npz", x=values)
    for name in ("x.npy", "x.npz"):
        batches = read_batches(tmp_path / name, graph, 4)
        assert [len(batch["x"]) for batch in batches] == [4, 2]
        assert torch.equal(torch.cat([batch["x"] for batch in batches]), torch.from_numpy(values))
    first, again, other = (synthetic_batches(graph, seed, 2, 3) for seed in (1, 1, 2))
    assert torch.equal(first[1]["x"], again[1]["x"])
    assert not torch.equal(first[1]["x"], other[1]["x"])
    assert first[0]["x"].shape == (3, 3, 8, 8)


def table_reader(op):
    """Return a graph that reads rows of a table at the places of an input, or adds to them before."""
    helper, float32, int64 = onnx.helper, onnx.TensorProto.FLOAT, onnx.TensorProto.INT64
    places = ["ids"] if op == "Gather" else ["more"]
    nodes = [helper.make_node("Gather", ["table", *places], ["y"]), helper.make_node("Shape", ["ids"], ["s"])]
    if op == "Add":
        nodes.insert(0, helper.make_node("Add", ["ids", "ids"], ["more"]))
    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info("ids", int64, ["n", 40])],
        [helper.make_tensor_value_info("y", float32, None), helper.make_tensor_value_info("s", int64, [2])],
        [onnx.numpy_helper.from_array(np.ones((7, 2), np.float32), "table")],
    )
    return from_model(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=9))


def test_synthetic_gather_indices_lie_within_the_table():
    first, again = (synthetic_batches(table_reader("Gather"), 1, 2, 3) for _ in range(2))
    assert first[0]["ids"].dtype == torch.int64
    assert first[0]["ids"].shape == (3, 40)
    assert torch.equal(first[1]["ids"], again[1]["ids"])
    assert set(first[0]["ids"].reshape(-1).tolist()) == set(range(7))
    with pytest.raises(GraphError, match="'ids'.*give data"):
        synthetic_batches(table_reader("Add"), 1, 2, 3)


def archive(path, **arrays):
    np.savez(path, **arrays)
    return path


@pytest.mark.parametrize(
    ("made", "error", "text"),
    [
        (lambda p: archive(p / "d.npz", y=np.zeros(DATA)), GraphError, "no array for input 'x'"),
        (lambda p: archive(p / "d.npz", x=np.zeros(DATA), y=np.zeros(3)), GraphError, "'y' is not an input"),
        (lambda p: archive(p / "d.npz", x=np.zeros((2, 3, 8, 9))), GraphError, r"has shape \[2, 3, 8, 9\]"),
        (lambda p: archive(p / "d.npz", x=np.zeros((0, 3, 8, 8))), GraphError, "at least one"),
        (lambda p: archive(p / "d.npz", x=np.full(DATA, np.nan)), GraphError, "NaN"),
        (lambda p: archive(p / "d.npz", x=np.array([{}])), FormatError, "pickled objects are refused"),
        (lambda p: archive(p / "d.npz", x=np.full(DATA, "a")), FormatError, "must be real numbers"),
        (lambda p: archive(p / "d.npz", x=np.zeros(DATA, np.longdouble)), GraphError, "at most 64 bits"),
        (lambda p: p / "missing.npz", FormatError, "cannot be read"),
    ],
)
def test_samples_that_do_not_fit_are_refused(tmp_path, made, error, text):
    with pytest.raises(error, match=text):
        read_batches(made(tmp_path), from_model(small_network("n")), 4)


def test_an_archive_too_large_when_unpacked_is_refused_before_unpacking(tmp_path, monkeypatch):
    monkeypatch.setattr("quantizer.ir.formats.npz.LARGEST", 1000)
    np.savez_compressed(tmp_path / "d.npz", x=np.zeros(DATA))
    with pytest.raises(FormatError, match="of 1000 bytes together"):
        read_batches(tmp_path / "d.npz", from_model(small_network("n")), 4)


def header(shape, order=b"<"):
    """Return an .npy file of two samples whose header says another shape or order of bytes."""
    stream = io.BytesIO()
    np.save(stream, whole((2, 3, 8, 8), 3))
    said = f"{shape}, }}".encode().ljust(40)
    return stream.getvalue().replace(b"'<f4'", b"'" + order + b"f4'").replace(b"(2, 3, 8, 8), }".ljust(40), said)


def entry(content, damage=lambda data: data):
    """Return an archive whose array x has *content*."""
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w", zipfile.ZIP_DEFLATED) as file:
        file.writestr("x.npy", content)
    return damage(bytearray(stream.getvalue()))


def flipped(data):
    data[60:70] = b"\xff" * 10
    return data


DAMAGED = {
    "a stream that does not unpack": entry(header("(2, 3, 8, 8)"), flipped),
    "another way to pack": entry(header("(2, 3, 8, 8)"), lambda data: data.replace(b"\x08\x00", b"\x0e\x00")),
    **{
        name: content
        for what, made in {
            "2**40 numbers": header("(1099511627776,)"),
            "an expression": header("(1 << 40,)"),
            "an open bracket": header("(2, 3, 8"),
            "no shape": header("None"),
            "a shape of texts": header("('a', 3)"),
            "a quote": header("(2, '3, 8, 8)"),
            "a zero byte": header("(2, \0)"),
            "no format": header("(2, 3, 8, 8)", b"x"),
            "deep brackets": header("(" * 38),
        }.items()
        for name, content in ((f"{what} in a file", made), (f"{what} in an archive", entry(made)))
    },
}


@pytest.mark.parametrize("what", DAMAGED)
def test_damaged_samples_are_one_error(tmp_path, what, model, capsys):
    """Of `analyse` and of `compare`, which read arrays alike; nothing of the declared size is made."""
    path = tmp_path / "d.npz"
    path.write_bytes(DAMAGED[what])
    for arguments in (["analyse", model, "--data", str(path)], ["compare", str(path), str(path)]):
        assert main(arguments) == 2
        said = capsys.readouterr().err
        assert said.startswith(f"error: {path}")
        assert said.count("\n") == 1


@pytest.mark.parametrize("packed", [True, False])
def test_samples_of_another_byte_order_read_the_same(tmp_path, packed):
    values = whole(DATA, 3)
    path = tmp_path / ("x.npz" if packed else "x.npy")
    (np.savez if packed else np.save)(path, **{"x" if packed else "arr": values.astype(">f4")})
    (batch,) = read_batches(path, from_model(small_network("n")), 6)
    assert torch.equal(batch["x"], torch.from_numpy(values))


def test_too_large_batches_are_refused_before_allocation(model, tmp_path, monkeypatch, capsys):
    assert main(["analyse", model, "--batch-size", "1048576", "--batches", "1048576"]) == 2
    assert "1048576 batches of 1048576 samples: 844424930131968 bytes of values" in capsys.readouterr().err
    monkeypatch.setattr("quantizer.ir.graph.LARGEST", 1000)
    np.save(tmp_path / "x.npy", whole(DATA, 3))
    with pytest.raises(GraphError, match=r"'x': shape \[6, 3, 8, 8\] of 4 bytes a value: more than 1000 bytes"):
        read_batches(tmp_path / "x.npy", from_model(small_network("n")), 4)


@pytest.mark.parametrize("seed", ["18446744073709551616", "-1", "x"])
def test_a_seed_that_torch_does_not_take_is_refused(model, seed, capsys):
    assert main(["analyse", model, "--seed", seed]) == 2
    assert "quantizer analyse: --seed: " in capsys.readouterr().err
    assert main(["analyse", model, "--seed", "18446744073709551615", "--batches", "1", "--view", "layer"]) == 0


@pytest.mark.parametrize("content", [b"", b"PK\x05\x06", b"\x93NUMPY\x01\x00", b"no array at all"])
def test_bytes_that_are_not_samples_are_refused(tmp_path, content):
    (tmp_path / "d.npz").write_bytes(content)
    with pytest.raises((FormatError, GraphError)):
        read_batches(tmp_path / "d.npz", from_model(small_network("n")), 4)
    assert not zipfile.is_zipfile(tmp_path / "d.npz") or content.startswith(b"PK")


def test_analyse_blames_the_same_operations_in_tables_and_in_json(model, capsys):
    assert main(["analyse", model]) == 0
    said = capsys.readouterr()
    assert said.err == ""
    table = said.out.split("layer-wise")[1].splitlines()
    assert main(["analyse", model, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert sorted(found) == ["graph", "layer"]
    worst = min(found["layer"], key=lambda row: row["sqnr"])
    assert table[3].split()[0] == worst["name"]
    assert {row["name"] for row in found["graph"]} == {row["name"] for row in found["layer"]}


def test_analyse_takes_data_and_every_view(model, tmp_path, capsys):
    np.savez(tmp_path / "d.npz", x=whole(DATA, 3))
    views = [word for view in ("enclosure", "statistics", "parameters") for word in ("--view", view)]
    assert main(["analyse", model, "--data", str(tmp_path / "d.npz"), "--batch-size", "3", "--json", *views]) == 0
    found = json.loads(capsys.readouterr().out)
    assert sorted(found) == ["enclosure", "parameters", "statistics"]
    assert {row["status"] for row in found["enclosure"]} == {"pass"}
    assert {row["tensor"] for row in found["parameters"]} == {"w", "b", "k", "g"}


@pytest.mark.parametrize(
    ("more", "text"),
    [
        (["--observer", "minimax"], "must be one of minmax"),
        (["--platform", "orth"], "no such platform"),
        (["--observer", "kl"], "zero point must be 0"),
        (["--data", "missing.npz"], "missing.npz: cannot be read"),
    ],
)
def test_analyse_reports_errors_in_one_line(model, capsys, more, text):
    assert main(["analyse", model, *more]) == 2
    said = capsys.readouterr().err
    assert text in said
    assert said.count("\n") == 1
