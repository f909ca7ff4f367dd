"""Split, Gather, Crop and Cast in the flow: codes move, parameters stay; real values against torch and numpy."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from quantizer.core.errors import QuantizerError
from quantizer.core.library import load_library
from quantizer.ir.formats import compass
from quantizer.ops import load_built_ins
from quantizer.optimize import steps
from quantizer.optimize.cfg import read_cfg
from quantizer.optimize.comparing import read_back
from quantizer.optimize.work import Work

load_built_ins()
LIBRARY = load_library()
SHAPE = (2, 6, 4)


def values() -> np.ndarray:
    return (np.sin(np.arange(48) * 1.7) * 3).astype(np.float32).reshape(SHAPE)


def layer(
    number: int,
    kind: str,
    bottoms: dict[str, tuple[int, ...]],
    tops: dict[str, tuple[int, ...]],
    *lines: str,
    dtype: str = "float32",
) -> str:
    def listed(items: list[str]) -> str:
        return f"[{','.join(items)}]"

    def shapes(tensors: dict[str, tuple[int, ...]]) -> str:
        return listed([listed([str(size) for size in shape]) for shape in tensors.values()])

    return "\n".join(
        [
            f"layer_id={number}",
            f"layer_name=layer{number}",
            f"layer_type={kind}",
            f"layer_bottom={listed(list(bottoms))}",
            f"layer_bottom_shape={shapes(bottoms)}",
            f"layer_bottom_type={listed(['float32'] * len(bottoms))}",
            f"layer_top={listed(list(tops))}",
            f"layer_top_shape={shapes(tops)}",
            f"layer_top_type={listed([dtype] * len(tops))}",
            *lines,
            "",
        ]
    )


def optimized(folder: Path, layers: list[str], inputs: str, outputs: str, feeds: list[np.ndarray], *lines: str) -> Work:
    header = f"model_name=one\nlayer_number={len(layers)}\ninput_tensors=[{inputs}]\noutput_tensors=[{outputs}]\n"
    (folder / "float.txt").write_text("\n".join([header, *layers]))
    (folder / "float.bin").write_bytes(b"")
    np.savez(folder / "calib.npz", *feeds)
    given = [f"graph = {folder / 'float.txt'}", f"bin = {folder / 'float.bin'}", "dataset = NumpyMultiInputDataset"]
    given += [f"calibration_data = {folder / 'calib.npz'}", "calibration_batch_size = 2", *lines]
    given += ["calibration_strategy_for_activation = extrema", "quantize_method_for_activation = per_tensor_asymmetric"]
    (folder / "opt.cfg").write_text("[Common]\n" + "\n".join(given) + "\n")
    return steps.quantized(read_cfg(folder / "opt.cfg"), LIBRARY)


def tensors(work: Work, feeds: dict[str, np.ndarray]) -> tuple[dict[str, np.ndarray], dict[str, np.ndarray]]:
    """Return the float results and the codes; the graph that is read back gives the same codes."""
    given = {name: torch.from_numpy(part) for name, part in feeds.items()}
    back = read_back(*compass.to_bytes(compass.foreign(work.quantized_graph, LIBRARY.specs)), LIBRARY)
    real, codes, again = (
        {name: made.numpy() for name, _, made in work.runs.forward(graph, given)}
        for graph in (work.float_graph, work.quantized_graph, back)
    )
    assert all(np.array_equal(codes[name], again[name]) for name in codes)
    return real, codes


def written(work: Work, kind: str) -> dict[str, object]:
    graph = compass.from_bytes(*compass.to_bytes(compass.foreign(work.quantized_graph, LIBRARY.specs)))
    return dict(next(node for node in graph.nodes if node.op == kind).attrs)


def source(name: str = "x", shape: tuple[int, ...] = SHAPE, number: int = 0, dtype: str = "float32") -> str:
    return layer(number, "Input", {}, {name: shape}, dtype=dtype)


@pytest.mark.parametrize("axis", [1, -2])
def test_a_split_has_one_layer_with_all_its_outputs(tmp_path: Path, axis: int) -> None:
    parts = {"a": (2, 1, 4), "b": (2, 3, 4), "c": (2, 2, 4)}
    layers = [
        source(),
        layer(1, "Split", {"x": SHAPE}, parts, f"axis={axis}", "splits=[1,3,2]"),
        layer(2, "Activation", {"b": (2, 3, 4)}, {"r": (2, 3, 4)}, "method=RELU"),
    ]
    work = optimized(tmp_path, layers, "x", "a,r,c", [values()])
    real, codes = tensors(work, {"x": values()})
    for found, whole in ((real, values()), (codes, codes["x"])):
        for name, part in zip("abc", np.split(whole, [1, 4], axis=1), strict=True):
            assert np.array_equal(found[name], part)
    for name in "abc":
        assert work.quantized_graph.tensor(name).qparams == work.quantized_graph.tensor("x").qparams
    assert written(work, "Split")["splits"] == (1, 3, 2)


@pytest.mark.parametrize(
    ("axis", "pairs", "places"),
    [(1, 0, [[3, -1, 0], [1, 1, 5]]), (-1, 0, [[1, 0], [3, 3]]), (1, 1, [[5, 0], [2, 2]]), (2, 2, [[0] * 6, [-1] * 6])],
)
def test_gather_selects_the_indexed_elements(tmp_path: Path, axis: int, pairs: int, places: list[int]) -> None:
    indices = np.array(places, dtype=np.int32)
    if pairs:
        flat = values().reshape(-1, *SHAPE[pairs:])
        rows = [
            np.take(row, own, axis % 3 - pairs) for row, own in zip(flat, indices.reshape(len(flat), -1), strict=True)
        ]
        tail = indices.shape[pairs:]
        wanted = np.stack(rows).reshape(*SHAPE[: axis % 3], *tail, *SHAPE[axis % 3 + 1 :])
    else:
        wanted = np.take(values(), indices, axis)
    layers = [
        source(),
        source("i", indices.shape, 1, "int32"),
        layer(
            2, "Gather", {"x": SHAPE, "i": indices.shape}, {"y": wanted.shape}, f"axis={axis}", f"batch_dims={pairs}"
        ).replace("[float32,float32]", "[float32,int32]"),
    ]
    work = optimized(tmp_path, layers, "x,i", "y", [values(), indices])
    real, codes = tensors(work, {"x": values(), "i": indices.astype(np.float32)})
    assert np.array_equal(real["y"], wanted)
    assert set(np.unique(codes["y"])) <= set(np.unique(codes["x"]))
    place = {float(v): int(c) for v, c in zip(values().ravel(), codes["x"].ravel(), strict=True)}
    assert codes["y"].ravel().tolist() == [place[float(v)] for v in wanted.ravel()]


def test_a_cast_keeps_codes_and_cuts_real_values(tmp_path: Path) -> None:
    layers = [source(), layer(1, "Cast", {"x": SHAPE}, {"y": SHAPE}, "to_dtype=int8")]
    work = optimized(tmp_path, layers, "x", "y", [values()])
    far = values() * 100
    real, codes = tensors(work, {"x": far})
    assert np.array_equal(real["y"], far.astype(np.int64).astype(np.int8))
    assert np.array_equal(codes["y"], codes["x"])
    assert str(written(work, "Cast")["to_dtype"]) == work.quantized_graph.tensor("x").dtype.name


def test_crop_selects_a_box(tmp_path: Path) -> None:
    layers = [source(), layer(1, "Crop", {"x": SHAPE}, {"y": (2, 2, 3)}, "crops=[[0,2],[3,5],[1,4]]")]
    work = optimized(tmp_path, layers, "x", "y", [values()])
    real, codes = tensors(work, {"x": values()})
    assert np.array_equal(real["y"], values()[:, 3:5, 1:4])
    assert np.array_equal(codes["y"], codes["x"][:, 3:5, 1:4])


def test_crop_of_the_first_axis_scales_with_the_batch(tmp_path: Path) -> None:
    layers = [source(), layer(1, "Crop", {"x": SHAPE}, {"y": (1, 6, 4)}, "crops=[[1,2],[0,6],[0,4]]")]
    work = optimized(tmp_path, layers, "x", "y", [values()])
    twice = np.concatenate([values(), values() + 1])
    for fed, wanted in ((values(), values()[1:]), (twice, twice[2:])):
        real, codes = tensors(work, {"x": fed})
        assert np.array_equal(real["y"], wanted)
        assert np.array_equal(codes["y"], codes["x"][len(wanted) :])


@pytest.mark.parametrize(
    ("kind", "tops", "lines", "said"),
    [
        ("Split", {"a": (2, 3, 4), "b": (2, 3, 4)}, ["axis=1", "splits=[3,2]"], "must add up to axis 1 of shape"),
        ("Split", {"a": (2, 3, 4), "b": (2, 3, 4)}, ["axis=5", "splits=[3,3]"], r"axis=5 must lie in"),
        ("Split", {"a": (2, 3, 4), "b": (2, 4, 4)}, ["axis=1", "splits=[3,3]"], "Correct layer_top_shape"),
        ("Crop", {"a": (2, 3, 4)}, ["crops=[[0,2],[3,5]]"], "a list of 3 pairs"),
        ("Crop", {"a": (2, 4, 4)}, ["crops=[[0,2],[0.5,4],[0,4]]"], r"layer1': Crop: crops: got .*0\.5.* 3 pairs \[first,end\] of integers"),
        ("Crop", {"a": (2, 4, 4)}, ["crops=[[0,2],[0,four],[0,4]]"], "of integers"),
        ("Pad", {"a": SHAPE}, ["mode=EDGE", "pads=[[0,0],[0,a],[0,0]]"], r"layer1': Pad: pads: got .*0,a.* 3 pairs \[before,after\] of integers"),
        ("Pad", {"a": SHAPE}, ["mode=WRAP", "pads=[[0,0],[0,0.5],[0,0]]"], "of integers"),
        ("Pad", {"a": SHAPE}, ["mode=EDGE", "pads=[[0,0],[0,-1],[0,0]]"], "no number may be negative"),
        ("Pad", {"a": SHAPE}, ["mode=EDGE", "pads=[[0,0],[0,0],[0,0]]", "constant_value=a"], "constant_value: got a: must be a finite"),
        ("Cast", {"a": SHAPE}, ["to_dtype=8"], "must be a number format"),
        ("Gather", {"a": SHAPE}, ["axis=1"], "Gather without input 'indices'"),
    ],
)  # fmt: skip
def test_a_wrong_layer_is_an_error(
    tmp_path: Path, kind: str, tops: dict[str, tuple[int, ...]], lines: list[str], said: str
) -> None:
    layers = [source(), layer(1, kind, {"x": SHAPE}, tops, *lines)]
    with pytest.raises(QuantizerError, match=said):
        optimized(tmp_path, layers, "x", ",".join(tops), [values()])


@pytest.mark.parametrize(
    ("given", "numbers", "bits", "wanted"),
    [
        ("int32", [0, 5, -2], 8, "int8"),
        ("int32", [0, 5, 3], 16, "int16"),
        ("int32", [0, 300, 5], 8, "int16"),
        ("int32", [0, 70000, 5], 8, "int32"),
        ("uint16", [0, 200, 5], 8, "uint8"),
        ("int8", [0, 5, 1], 8, "int8"),
        ("uint8", [0, 5, 1], 8, "uint8"),
    ],
)
def test_constants_of_integers_are_narrowed(
    tmp_path: Path, given: str, numbers: list[int], bits: int, wanted: str
) -> None:
    """To 8, 16 or 32 bits, as their values need, but not below the activation's (facts: the original's Constant)."""
    data = np.array(numbers, dtype=given)
    constant = [f"weights_type={given}", "weights_offset=0", f"weights_size={data.nbytes}", "weights_shape=[3]"]
    layers = [
        source(),
        layer(1, "Constant", {}, {"i": (3,)}, *constant, dtype=given),
        layer(2, "Activation", {"x": SHAPE}, {"y": SHAPE}, "method=RELU"),
    ]
    header = "model_name=one\nlayer_number=3\ninput_tensors=[x]\noutput_tensors=[y,i]\n"
    (tmp_path / "float.txt").write_text("\n".join([header, *layers]))
    (tmp_path / "float.bin").write_bytes(data.tobytes())
    np.save(tmp_path / "calib.npy", values())
    lines = [f"graph = {tmp_path / 'float.txt'}", f"bin = {tmp_path / 'float.bin'}", "dataset = NumpyDataset"]
    lines += [f"calibration_data = {tmp_path / 'calib.npy'}", f"activation_bits = {bits}"]
    (tmp_path / "opt.cfg").write_text("[Common]\n" + "\n".join(lines) + "\n")
    work = steps.quantized(read_cfg(tmp_path / "opt.cfg"), LIBRARY)
    graph = compass.from_bytes(*compass.to_bytes(compass.foreign(work.quantized_graph, LIBRARY.specs)))
    top = graph.tensor("i")
    assert top.dtype.name == wanted
    assert top.qparams is not None
    assert (float(top.qparams.scale), int(top.qparams.zero_point)) == (1.0, 0)
    node = next(node for node in graph.nodes if node.op == "Constant")
    assert graph.tensor(str(node.inputs[0])).data.tolist() == numbers
