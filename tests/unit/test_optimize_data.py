"""Data sets, batches, metrics and class plugins of the flow; what is wrong with them is said before anything is written."""

from __future__ import annotations

import io
import itertools
import json
import math
import pickle
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from quantizer.cli import main
from quantizer.core.errors import FormatError
from quantizer.numerics.deviates import deviates
from quantizer.optimize import datasets, metrics
from quantizer.optimize.loader import collate
from quantizer.optimize.pickled_arrays import read_arrays

REFERENCE = Path(__file__).parents[2] / "cases" / "reference"


def saved(path: Path, values: Any) -> str:
    np.save(path, values, allow_pickle=True)
    return str(path)


def test_single_arrays_with_and_without_labels(tmp_path: Path) -> None:
    data, label = deviates((3, 2, 2, 4), (1,)), np.arange(3)
    found = datasets.NumpyDataset(saved(tmp_path / "x.npy", data), saved(tmp_path / "l.npy", label))
    assert len(found) == 3
    (sample,), said = found[1]
    assert np.array_equal(sample, data[1])
    assert said == 1
    assert datasets.NumpyDataset(str(tmp_path / "x.npy"))[0][1] == -math.inf


def test_data_sets_change_the_order_of_axes(tmp_path: Path) -> None:
    data = deviates((3, 5, 6, 4), (2,))
    path = saved(tmp_path / "x.npy", data)
    assert np.array_equal(datasets.NumpyNCHW2NHWCDataset(path)[2][0][0], data[2].transpose(1, 2, 0))
    assert np.array_equal(datasets.NumpyNHWC2NCHWDataset(path)[2][0][0], data[2].transpose(2, 0, 1))
    several = tmp_path / "x.npz"
    np.savez(several, a=data, b=data[:, :2])
    assert [part.shape for part in datasets.NumpyMIMONCHWDataset(str(several))[0][0]] == [(4, 5, 6), (4, 2, 6)]


def test_several_inputs_as_archive_and_as_dict(tmp_path: Path) -> None:
    columns = {"k0": deviates((3, 2), (3,)), "k1": deviates((3, 4), (4,))}
    np.savez(tmp_path / "x.npz", **columns)
    for path in (str(tmp_path / "x.npz"), saved(tmp_path / "x.npy", columns)):
        found = datasets.NumpyMultiInputDataset(path, path)
        inputs, labels = found[2]
        assert all(np.array_equal(got, column[2]) for got, column in zip(inputs, columns.values(), strict=True))
        assert len(labels) == 2


def test_a_zipped_data_set_pairs_data_with_labels(tmp_path: Path) -> None:
    data = {"0": deviates((3, 2), (5,)), "shape_0": np.array([1, 2])}
    label = {"0": np.array([7.0, 8.0]), "shape_0": np.array([]), "1": np.arange(3.0), "shape_1": np.array([1])}
    np.savez(tmp_path / "x.npz", **data)
    np.savez(tmp_path / "l.npz", **label)
    found = datasets.NumpyZippedDataset(str(tmp_path / "x.npz"), str(tmp_path / "l.npz"))
    assert (len(found), len(found[0][0])) == (3, 1)
    assert [np.asarray(part).tolist() for part in found[2][1]] == [[7.0, 8.0], 2.0]


def test_a_list_of_files_is_one_data_set(tmp_path: Path) -> None:
    parts = [deviates((2, 3), (6, i)) for i in range(2)]
    for i, part in enumerate(parts):
        np.save(tmp_path / f"p{i}.npy", part)
    (tmp_path / "all.txt").write_text("# parts\np0.npy\np1.npy\n")
    found = datasets.NumpyDataset(str(tmp_path / "all.txt"))
    assert np.array_equal(np.stack([found[i][0][0] for i in range(len(found))]), np.concatenate(parts))
    (tmp_path / "none.txt").write_text("\n")
    with pytest.raises(FormatError, match="names no file"):
        datasets.NumpyDataset(str(tmp_path / "none.txt"))


def test_random_samples_repeat() -> None:
    first, again, other = (datasets.RandomDataset(f"2x3+4,count=5,seed={seed}") for seed in (1, 1, 2))
    assert (len(first), [part.shape for part in first[0][0]]) == (5, [(2, 3), (4,)])
    assert np.array_equal(first[3][0][0], again[3][0][0])
    assert not np.array_equal(first[3][0][0], other[3][0][0])
    values = deviates((200_000,), (9,)).astype(np.float64)
    assert abs(values.mean()) < 5 / math.sqrt(len(values))
    assert abs(values.var() - 1) < 5 * math.sqrt(2 / len(values))
    """Five standard errors of mean and variance of normal deviates."""
    with pytest.raises(FormatError, match="shapes of one sample"):
        datasets.RandomDataset("2xa")


class Spy:
    """Would show that a pickle was run."""

    def __reduce__(self) -> Any:
        return (exec, ("raise AssertionError('the pickle was run')",))


@pytest.mark.parametrize("protocol", range(2, 6))
def test_pickled_dicts_of_arrays_are_read_without_pickle(tmp_path: Path, protocol: int) -> None:
    columns = {
        "a": deviates((3, 2), (1,)),
        "b": np.arange(6, dtype=">i2").reshape(3, 2),
        "c": np.asfortranarray(deviates((3, 4), (2,))),
    }
    path = tmp_path / "x.npy"
    with path.open("wb") as file:
        array = np.array(columns, dtype=object)
        np.lib.format.write_array_header_1_0(file, np.lib.format.header_data_from_array_1_0(array))
        pickle.dump(array, file, protocol=protocol)
    found = read_arrays(path)
    assert found.keys() == columns.keys()
    assert all(np.array_equal(found[key], columns[key]) for key in columns)


@pytest.mark.parametrize(
    "content",
    [
        {"a": Spy()},
        {"a": [1]},
        {1: np.zeros(2)},
        {"a": np.array([Spy()])},
        {"a": np.array(["x"])},
        {},
        [np.zeros(2)],
        {"a": {"b": np.zeros(2)}},
    ],
    ids=["object", "list", "key", "objects", "text", "empty", "bare_list", "nested"],
)
def test_other_pickles_are_refused_without_execution(tmp_path: Path, content: Any) -> None:
    path = tmp_path / "x.npy"
    holder = np.empty((), dtype=object)
    holder[()] = content
    np.save(path, holder, allow_pickle=True)
    with pytest.raises(FormatError, match="pickled objects are refused"):
        read_arrays(path)


def test_a_truncated_pickle_is_refused(tmp_path: Path) -> None:
    raw = (REFERENCE / "compass" / "elt_add" / "ext" / "calib.npy").read_bytes()
    path = tmp_path / "x.npy"
    for size in (*range(100, 500, 7), len(raw) - 1):
        path.write_bytes(raw[:size])
        with pytest.raises(FormatError):
            datasets.NumpyMultiInputDataset(str(path))


def test_collate_joins_each_part_of_samples() -> None:
    found = collate([[[np.ones(2)], {"a": 1, "b": "x"}], [[np.zeros(2)], {"a": 2, "b": "y"}]])
    assert found[0][0].tolist() == [[1, 1], [0, 0]]
    assert (found[1]["a"].tolist(), found[1]["b"]) == ([1, 2], ["x", "y"])
    assert collate([torch.ones(2), torch.ones(2)]).shape == (2, 2)
    with pytest.raises(ValueError, match="different numbers"):
        collate([[1], [1, 2]])


def scored(metric: Any, got: Any, wanted: Any) -> float:
    metric.reset()
    metric([torch.tensor(got)], torch.tensor(wanted))
    assert f"{metric.compute():f}" in metric.report()
    return float(metric.compute())


OPERATIONS = 32
"""More than any of these metrics rounds, float64, all terms positive."""
GOT, WANTED = [[1.0, 2.0], [0.0, -3.0]], [[1.0, 1.0], [0.5, -1.0]]


@pytest.mark.parametrize(
    ("metric", "wanted"),
    [
        (metrics.MaxAbsErrorMetric, (1.0 + 2.0) / 2),
        (metrics.MSEMetric, (0.5 + (0.25 + 4.0) / 2) / 2),
        (metrics.RMSEMetric, (math.sqrt(0.5) + math.sqrt(2.125)) / 2),
        (metrics.PSNRMetric, (10 * math.log10(1 / 0.5) + 10 * math.log10(1 / 2.125)) / 2),
        (metrics.SQNRMetric, (10 * math.log10(2 / 1.0) + 10 * math.log10(1.25 / 4.25)) / 2),
        (metrics.CosDistanceMetric, (3 / math.sqrt(5 * 2) + 3 / (3 * math.sqrt(1.25))) / 2),
    ],
)
def test_each_metric_equals_its_hand_computed_value(metric: Any, wanted: float) -> None:
    assert math.isclose(scored(metric(), GOT, WANTED), wanted, rel_tol=OPERATIONS * 2.0**-53)


def test_top_k_counts_the_k_largest_classes() -> None:
    rows = [[0.1, 0.7, 0.2], [0.5, 0.3, 0.2], [0.1, 0.2, 0.7]]
    assert scored(metrics.TopKMetric(), rows, [1, 1, 0]) == 1 / 3
    assert scored(metrics.TopKMetric("2"), rows, [1, 1, 0]) == 2 / 3
    assert metrics.TopKMetric().compute() == -math.inf
    with pytest.raises(FormatError, match="3 classes"):
        scored(metrics.TopKMetric("4"), rows, [0, 0, 0])
    with pytest.raises(FormatError, match="whole number"):
        metrics.TopKMetric("x")


def test_perfect_and_silent_predictions() -> None:
    assert scored(metrics.SQNRMetric(), WANTED, WANTED) == math.inf
    assert scored(metrics.PSNRMetric(), [[1.0]], [[0.0]]) == -math.inf
    with pytest.raises(FormatError, match="must be equal"):
        scored(metrics.MSEMetric(), GOT, [[1.0], [2.0]])


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Return a function that runs the convolution's cfg with some lines changed."""
    source = REFERENCE / "compass" / "conv3x3" / "ext"
    for name in ("float.txt", "float.bin", "calib.npy", "val.npy"):
        (tmp_path / name).write_bytes((source / name).read_bytes())
    monkeypatch.chdir(tmp_path)

    def go(*lines: str) -> int:
        kept = dict(line.split(" = ") for line in (source / "opt.cfg").read_text().splitlines()[1:])
        kept |= dict(line.split(" = ", 1) for line in lines) | {"output_dir": "out"}
        Path("opt.cfg").write_text("[Common]\n" + "".join(f"{key} = {value}\n" for key, value in kept.items()))
        return main(["optimize", "--cfg", "opt.cfg"])

    return go


def written() -> list[str]:
    return sorted(path.name for path in Path("out").glob("*")) if Path("out").exists() else []


ALL = ["conv3x3_opt_template.json", "quant.bin", "quant.txt"]


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda x: x[:, :7], ["sample 0 of input 'in0' has shape [7, 8, 4], the IR says [8, 8, 4]"]),
        (lambda x: x[..., 0], ["has shape [8, 8], the IR says [8, 8, 4]"]),
        (
            lambda x: np.where(np.arange(x.size).reshape(x.shape) == 600, np.nan, x),
            ["sample 2 of input 'in0' holds nan at", "finite"],
        ),
        (lambda x: np.where(x == x.max(), np.inf, x), ["holds inf", "finite"]),
        (lambda x: x.astype(object), ["pickled objects are refused"]),
        (lambda x: np.full(x.shape, "a"), ["make no batch", "TypeError"]),
        (lambda x: x[:0], ["holds no samples"]),
        (lambda x: np.float32(1), ["holds no samples"]),
    ],
)
def test_bad_calibration_data(run: Any, capsys: pytest.CaptureFixture[str], make: Any, words: list[str]) -> None:
    np.save("bad.npy", make(np.load("calib.npy")), allow_pickle=True)
    assert run("calibration_data = bad.npy") == 2
    assert all(word in capsys.readouterr().err for word in words[:1])
    assert written() == []


def test_unusable_files_of_a_cfg_are_refused_by_name(run: Any, capsys: pytest.CaptureFixture[str]) -> None:
    Path("cut.bin").write_bytes(Path("float.bin").read_bytes()[:100])
    Path("empty.npy").touch()
    for lines, words in (
        (("bin = cut.bin",), "do not lie in cut.bin"),
        (("graph = none.txt",), "none.txt: no such file"),
        (("calibration_data = empty.npy",), "not a .npy file"),
        (("calibration_data = float.bin",), "not a .npy file"),
        (("dataset = NumpyDatasets",), "Did you mean 'NumpyDataset'?"),
        (("metric = CosMetric", "data = val.npy", "label = val.npy"), "no such metric"),
        (("metric = TopKMetric(a)", "data = val.npy", "label = val.npy"), "must be a whole number"),
        (
            ("metric = RMSEMetric(1,2)", "data = val.npy", "label = val.npy"),
            "opt.cfg:11: metric: RMSEMetric(1, 2) of built-in: TypeError",
        ),
    ):
        assert run(*lines) == 2
        assert words in capsys.readouterr().err, lines
        assert written() == []


def test_an_output_that_cannot_be_written(
    run: Any, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    Path("out").touch()
    assert run() == 2
    assert "output_dir: out: is not a folder. Nothing was written." in capsys.readouterr().err
    Path("out").unlink()
    monkeypatch.setattr("os.access", lambda *_: False)
    assert run() == 2
    assert "cannot be written" in capsys.readouterr().err
    assert written() == []


@pytest.mark.parametrize(
    ("lines", "field", "name"),
    [
        (("graph = out/quant.txt",), "output_dir", "out/quant.txt"),
        (("graph = link.txt",), "output_dir", "out/quant.txt"),
        (("bin = out/quant.bin",), "output_dir", "out/quant.bin"),
        (("bin = out/net.bin", "out_ir_name = net"), "output_dir", "out/net.bin"),
        (
            ("calibration_data = out/conv3x3_statistic_info.npz", "save_statistic_info = true"),
            "output_dir",
            "out/conv3x3_statistic_info.npz",
        ),
        (("data = out/quant.txt",), "output_dir", "out/quant.txt"),
        (("label = dumped/quant/y.npy", "dump = true", "dump_dir = dumped"), "dump_dir", "dumped/quant/y.npy"),
    ],
)
def test_input_files_of_a_run_are_not_overwritten(
    run: Any, capsys: pytest.CaptureFixture[str], lines: tuple[str, ...], field: str, name: str
) -> None:
    for path in (
        "out/quant.txt",
        "out/quant.bin",
        "out/net.bin",
        "out/conv3x3_opt_template.json",
        "out/conv3x3_statistic_info.npz",
        "dumped/quant/y.npy",
    ):
        Path(path).parent.mkdir(parents=True, exist_ok=True)
        source = {".txt": "float.txt", ".bin": "float.bin"}.get(Path(path).suffix, "calib.npy")
        Path(path).write_bytes(Path(source).read_bytes())
    Path("link.txt").symlink_to("out/quant.txt")
    before = {path: path.read_bytes() for path in Path().rglob("*") if path.is_file() and path.name != "opt.cfg"}
    assert run(*lines) == 2
    said = capsys.readouterr().err
    assert f": {field}: {name} " in said
    assert "Nothing was written" in said
    assert {path: path.read_bytes() for path in before} == before


def test_an_edited_template_is_not_overwritten(run: Any) -> None:
    assert run("skip_optimization = false") == 0
    template = Path("out/conv3x3_opt_template.json")
    edited = json.dumps({name: {"q_bits_activation": 16} for name in json.loads(template.read_text())})
    template.write_text(edited)
    Path("out/quant.txt").unlink()
    assert run(f"opt_config = {template}") == 0
    assert template.read_text() == edited
    assert written() == ALL


def test_a_cfg_that_the_output_would_replace_is_refused(run: Any, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("skip_optimization = false") == 0
    Path("out/opt.txt").write_text(Path("opt.cfg").read_text().replace("out_ir_name = quant", "out_ir_name = opt"))
    capsys.readouterr()
    assert main(["optimize", "--cfg", "out/opt.txt"]) == 2
    assert "output_dir: out/opt.txt would be written, and this run reads it" in capsys.readouterr().err


def test_samples_of_a_recipe_are_not_files(run: Any, capsys: pytest.CaptureFixture[str]) -> None:
    recipe = "8x8x4,count=4,seed=1"
    for name in ("RandomDataset", "randomdataset"):
        assert run(f"dataset = {name}", f"calibration_data = {recipe}", f"data = {recipe}") == 0
        assert written() == ALL
    for lines, words in (
        (("calibration_data = 8x8x4,count",), "must be shapes of one sample"),
        (("calibration_data = 99999x99999x4,count=4",), f"takes {99999 * 99999 * 4 * 4 * 16} bytes to make"),
        ((f"calibration_data = {recipe}", "label = none.npy"), "label: none.npy: no such file"),
    ):
        assert run("dataset = RandomDataset", *lines) == 2
        assert words in capsys.readouterr().err
    assert run(f"calibration_data = {recipe}") == 2
    assert "seed=1: no such file" in capsys.readouterr().err


def declaring(shape: str) -> bytes:
    """Return an .npy file of four numbers whose header says another shape."""
    stream = io.BytesIO()
    np.save(stream, np.zeros(4))
    return stream.getvalue().replace(b"(4,), }" + b" " * 20, f"{shape}, }}".encode().ljust(27))


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (declaring("(1 << 40,)"), "is not a .npy file of one numeric array"),
        (declaring("(1099511627776,)"), "needs 8796093022208 bytes"),
        (declaring("(4,"), "is not a .npy file of one numeric array"),
        (declaring("None"), "is not a .npy file of one numeric array"),
    ],
    ids=["expression", "huge", "open", "none"],
)
@pytest.mark.parametrize("packed", [True, False])
def test_damaged_arrays_of_calibration_are_refused(tmp_path: Path, content: bytes, words: str, packed: bool) -> None:
    path = tmp_path / "x"
    path.write_bytes(content)
    if packed:
        with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
            archive.writestr("x.npy", content)
    with pytest.raises(FormatError, match=words):
        datasets.NumpyMultiInputDataset(str(path))


def test_a_calibration_archive_too_large_when_unpacked_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(datasets, "LARGEST", 1000)
    np.savez_compressed(tmp_path / "x.npz", a=np.zeros((10, 100)))
    for dataset in (datasets.NumpyMultiInputDataset, datasets.NumpyZippedDataset):
        with pytest.raises(FormatError, match="of 1000 bytes together"):
            dataset(str(tmp_path / "x.npz"))


def test_labels_may_be_texts(tmp_path: Path) -> None:
    np.savez(tmp_path / "x.npz", a=np.array(["cat", "dog"]))
    assert datasets.NumpyMultiInputDataset(str(tmp_path / "x.npz"))[1] == [["dog"], -math.inf]


def test_a_full_disk_leaves_no_half_written_ir(
    run: Any, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    opened, calls = __import__("os").fdopen, itertools.count()

    def full(*arguments: Any) -> Any:
        if next(calls) == 1:
            raise OSError(28, "No space left on device")
        return opened(*arguments)

    monkeypatch.setattr("os.fdopen", full)
    assert run() == 2
    assert "no space left" in capsys.readouterr().err
    assert written() == []


PLUGIN = """
from AIPUBuilder.Optimizer.framework import *
from AIPUBuilder.Optimizer.logger import *
from torch.utils.data import Dataset
import numpy as np
import torch

@register_plugin(PluginType.Dataset, '1.0')
class HalfDataset(Dataset):
    def __init__(self, data_file, label_file=None):
        self.data = np.load(data_file, mmap_mode='c')
    def __len__(self):
        return len(self.data) // 2
    def __getitem__(self, idx):
        return [[self.data[idx]], float("-inf")]

@register_plugin(PluginType.Metric, '1.0')
class ShapeMetric(OptBaseMetric):
    def __init__(self, wanted='1'):
        self.wanted, self.seen = wanted, []
    def __call__(self, pred, target):
        if self.wanted == 'raise':
            raise ValueError('out of luck')
        self.seen.append((tuple(pred[0].shape), str(pred[0].dtype)))
    def reset(self):
        self.seen = []
    def compute(self):
        return len(self.seen)
    def report(self):
        return '%s batches of %s' % (self.wanted, sorted(set(self.seen)))
"""


@pytest.fixture
def plugin(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "plugins"
    folder.mkdir()
    (folder / "aipubt_opt_metric_of_tests.py").write_text(PLUGIN)
    monkeypatch.setenv("AIPUPLUGIN_PATH", str(folder))
    monkeypatch.setattr("quantizer.plugins.loading._LOADED", {})
    monkeypatch.setattr("quantizer.plugins.classes.CLASSES.entries", {})


@pytest.mark.usefixtures("plugin")
def test_plugins_of_data_and_metrics(run: Any, capsys: pytest.CaptureFixture[str]) -> None:
    lines = ("dataset = HalfDataset", "data = calib.npy", "label = calib.npy", "metric_batch_size = 2")
    assert run(*lines, "metric = ShapeMetric, shapemetric(7)") == 0
    said = capsys.readouterr().out
    assert "quantized metric: 1 batches of [((2, 8, 8, 6), 'torch.float32')]" in said
    assert "float metric: 7 batches of" in said
    assert written() == ALL


@pytest.mark.usefixtures("plugin")
def test_a_raising_metric_is_named_and_the_ir_is_complete(run: Any, capsys: pytest.CaptureFixture[str]) -> None:
    lines = ("dataset = HalfDataset", "data = calib.npy", "label = calib.npy", "metric = ShapeMetric(raise)")
    assert run(*lines) == 2
    assert "metric ShapeMetric: __call__ raised ValueError: out of luck" in capsys.readouterr().err
    assert written() == ALL


@pytest.mark.usefixtures("plugin")
def test_plugins_are_listed_with_version_and_origin(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["optimize", "--plugin"]) == 0
    listed = [line.split() for line in capsys.readouterr().out.splitlines()]
    (row,) = [row for row in listed if "ShapeMetric" in row]
    assert row[:3] == ["metric", "ShapeMetric", "1"]
    assert row[3].endswith("aipubt_opt_metric_of_tests.py")
    assert ["metric", "TopKMetric", "1", "built-in"] in listed
    assert any(row[:3] == ["operator", "quantized", "Convolution"] for row in listed)


def test_fields_are_listed(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["optimize", "--field"]) == 0
    out = capsys.readouterr().out
    assert "activation_bits *" in out
    assert "compat_quantized_model (hidden)" in out
    assert "an integer from 8 to 16" in out


def test_a_dump_and_its_statistics_are_written(run: Any) -> None:
    assert run("dump = true", "dump_dir = out/dump", "save_statistic_info = true") == 0
    dumped = sorted(path.name for path in Path("out/dump/quant").iterdir())
    assert len(dumped) == 4
    assert np.load(next(Path("out/dump/float32").glob("*conv3x3_o0*"))).dtype == np.float32
    with np.load("out/conv3x3_statistic_info.npz") as archive:
        assert archive["in0/histogram"].shape == (2048,)


def test_a_thousand_samples_are_streamed(run: Any) -> None:
    """Memory is bounded: a batch is read when it is its turn, and no more than one at a time is alive."""
    data = np.lib.format.open_memmap("many.npy", mode="w+", dtype=np.float32, shape=(1000, 8, 8, 4))
    data[:] = deviates((1000, 8, 8, 4), (3,))
    data.flush()
    assert run("calibration_data = many.npy", "calibration_batch_size = 8") == 0
    found = datasets.read_array(Path("many.npy"))
    assert isinstance(found, np.memmap)


@pytest.mark.parametrize("strategy", ["mean", "3std", "kld", "aciq_laplace"])
def test_saved_statistics_give_the_same_result(run: Any, strategy: str) -> None:
    """The calibration data of this run have no influence: its ranges come from the file."""
    line = f"calibration_strategy_for_activation = {strategy}"
    assert run("save_statistic_info = true", line) == 0
    kept, wanted = Path("out/conv3x3_statistic_info.npz").read_bytes(), Path("out/quant.txt").read_bytes()
    Path("kept.npz").write_bytes(kept)
    np.save("other.npy", deviates((2, 8, 8, 4), (9,)).astype(np.float32) * 7)
    assert run("calibration_data = other.npy", line) == 0
    assert Path("out/quant.txt").read_bytes() != wanted
    assert run("calibration_data = other.npy", "statistic_file = kept.npz", line) == 0
    assert Path("out/quant.txt").read_bytes() == wanted


def test_statistics_lacking_a_tensor_are_refused_unless_allowed(run: Any, capsys: Any) -> None:
    assert run("save_statistic_info = true") == 0
    with np.load("out/conv3x3_statistic_info.npz") as archive:
        held = {key: archive[key] for key in archive.files}
    np.savez("less.npz", **{key: values for key, values in held.items() if not key.startswith("in0/")})
    assert run("statistic_file = less.npz") == 2
    assert "no statistics of 'in0'" in capsys.readouterr().err
    assert run("statistic_file = less.npz", "ignore_missing_statistic = true") == 0
    np.savez("no_end.npz", **{key: values for key, values in held.items() if key != "in0/high"})
    assert run("statistic_file = no_end.npz") == 2
    assert "tensor 'in0' has no high" in capsys.readouterr().err
    np.savez("other.npz", anything=np.zeros(3))
    assert run("statistic_file = other.npz") == 2
    assert "'anything': must be a tensor's name" in capsys.readouterr().err


def test_a_batch_axis_without_collate_fn_gives_a_warning(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Samples are always stacked along the first axis; the flow ignored the field silently."""
    source = REFERENCE / "compass" / "act_relu" / "ext"
    cfg = (source / "opt.cfg").read_text().replace("output_dir = .", f"output_dir = {tmp_path}")
    for line in ("graph = ", "bin = ", "calibration_data = "):
        cfg = cfg.replace(f"\n{line}", f"\n{line}{source}/")
    (tmp_path / "opt.cfg").write_text(f"{cfg}\ndata_batch_dim = 2\n")
    assert main(["optimize", "--cfg", str(tmp_path / "opt.cfg")]) == 0
    said = capsys.readouterr()
    assert "warning: data_batch_dim = 2 has no effect: NumpyDataset has no collate_fn" in said.out + said.err
