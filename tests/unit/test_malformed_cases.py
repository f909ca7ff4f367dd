"""Malformed stored cases: one error with file and field, exit code 2, and nothing is written."""

import copy
import json
from pathlib import Path

import pytest

from quantizer.cli import main
from quantizer.core.case import Case
from quantizer.core.errors import CaseError

GOOD = json.loads(Path("quantizer/platforms/compass/cases/defects/compass-misaligned_table.json").read_text())


def _with(**changes):
    raw = copy.deepcopy(GOOD)
    for path, value in changes.items():
        place = raw
        *parents, last = path.split("__")
        for name in parents:
            place = place[name]
        if value is KeyError:
            del place[last]
        else:
            place[last] = value
    return raw


WRONG = {
    "no case": (_with(case=KeyError), "case: "),
    "unknown key": (_with(extra=1), "extra: "),
    "other version": (_with(case__version=2), "version 2 of this kind of file."),
    "unknown operator": (
        _with(case__op="softmox"),
        "'softmox': no spec is known. Name its folder with --op-specs. Did you mean 'softmax'?",
    ),
    "unknown scheme": (_with(case__scheme="a17"), "'a17': no such scheme."),
    "weights without weights": (_with(case__scheme="w8a8"), "scheme 'w8a8': softmax has no weights."),
    "unknown platform": (_with(case__platform="compas"), "'compas': no such platform. Did you mean 'compass'?"),
    "unknown data set": (_with(case__data__set="rndom"), "data.set 'rndom': must be one of"),
    "negative size": (_with(case__shapes={"x": [-1]}), "shapes.x.0: "),
    "size that is a text": (_with(case__shapes={"x": ["1"]}), "shapes.x.0: "),
    "too many axes": (_with(case__shapes={"x": [1] * 9}), "shapes.x: "),
    "too large": (_with(case__shapes={"x": [1 << 13, 1 << 13]}), "has more than 16777216 elements"),
    "missing operand": (_with(case__shapes={}), "input 'x' is missing"),
    "unknown operand": (_with(case__shapes={"x": [1], "z": [1]}), "'z'"),
    "broken constraint": (_with(case__attrs={"axis": 5}), "axis=5 must lie in"),
    "unknown attribute": (_with(case__attrs={"axis": 0, "axes": 1}), "attribute 'axes' is not one of axis"),
    "huge attribute": (_with(case__attrs={"axis": 1 << 40}), "attrs.axis"),
    "missing range": (_with(case__ranges={"x": [0.0, 1.0]}), "ranges.y: must be [smallest, largest]"),
    "NaN range": (_with(case__ranges={"x": [float("nan"), 1.0], "y": [0.0, 1.0]}), "ranges.x.0: "),
    "reversed range": (_with(case__ranges={"x": [1.0, 0.0], "y": [0.0, 1.0]}), "ranges.x: must be [smallest, largest]"),
    "unknown order": (_with(case__order="nhwc"), "order: "),
    "unknown tile axis": (_with(case__tiles={"d7": 1}), "tiles.d7: cannot be cut here"),
    "tile of size 0": (_with(case__tiles={"d0": 0}), "tiles.d0: "),
    "seed that is negative": (_with(case__data__seed=-1), "data.seed: "),
    "a list": ([], "the file: "),
}


@pytest.mark.parametrize(("raw", "says"), WRONG.values(), ids=WRONG)
def test_a_wrong_replay_file_is_one_clear_error(raw, says, tmp_path, capsys):
    path = tmp_path / "case.json"
    path.write_text(json.dumps(raw))
    assert main(["case", "replay", str(path)]) == 2
    message = capsys.readouterr().err
    assert says in message
    assert str(path) in message
    assert "Traceback" not in message
    assert [item.name for item in tmp_path.iterdir()] == ["case.json"]


@pytest.mark.parametrize("text", ["", "{", "[" * 100_000, "nul\x00", '{"case": 1e400}'])
def test_text_that_is_not_a_case_is_one_clear_error(text, tmp_path, capsys):
    path = tmp_path / "case.json"
    path.write_text(text)
    assert main(["case", "replay", str(path)]) == 2
    assert str(path) in capsys.readouterr().err


def test_a_missing_file_is_one_clear_error(capsys):
    assert main(["case", "replay", "nowhere.json"]) == 2
    assert "nowhere.json: cannot be read: no such file or directory." in capsys.readouterr().err


def test_a_right_file_replays(capsys):
    assert main(["case", "replay", "quantizer/platforms/compass/cases/defects/compass-misaligned_table.json"]) == 0
    assert "misaligned_table" in capsys.readouterr().out


def test_export_writes_a_new_folder_only(tmp_path, capsys):
    target = tmp_path / "graph"
    assert (
        main(
            [
                "case",
                "export",
                "quantizer/platforms/compass/cases/defects/compass-batch_dependent_softmax.json",
                "-o",
                str(target),
            ]
        )
        == 0
    )
    assert {item.name for item in target.iterdir()} == {
        "case.npz",
        "case.json",
        "graph.txt",
        "graph.bin",
        "x.npy",
        "codes.npy",
        "opt.cfg",
        "data.npz",
    }
    assert (
        main(
            [
                "case",
                "export",
                "quantizer/platforms/compass/cases/defects/compass-batch_dependent_softmax.json",
                "-o",
                str(target),
            ]
        )
        == 2
    )
    assert "exists already" in capsys.readouterr().err


def test_keep_needs_a_reason(capsys):
    assert (
        main(
            ["case", "keep", "quantizer/platforms/compass/cases/defects/compass-misaligned_table.json", "--reason", " "]
        )
        == 2
    )
    assert "--reason: say why" in capsys.readouterr().err


def test_only_case_json_is_read_back():
    case = Case.from_dict(GOOD["case"], "here")
    assert Case.from_json(case.to_json(), "here") == case
    with pytest.raises(CaseError, match="here: not JSON"):
        Case.from_json("{", "here")
