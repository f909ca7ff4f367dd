"""`quantizer compare`: the original's words in measured cases, and failures where the original ignores errors."""

from __future__ import annotations

import io
import json
import math
import zipfile
from pathlib import Path

import numpy as np
import pytest
import torch

from quantizer.cli import main
from quantizer.reporting.arrays import Tolerances, compare_arrays, compare_pair, likeness

LOOSE = Tolerances(cosine=0.95, euclid=0.80)


def normal(size: int = 4096) -> np.ndarray:
    return torch.randn(size, generator=torch.Generator().manual_seed(7)).numpy()


def word(target: np.ndarray, reference: np.ndarray, tolerances: Tolerances = LOOSE) -> str:
    return compare_pair("x", target, reference, tolerances).likeness.word


def test_accepted_changes_are_those_measured_on_the_original():
    """tpu-mlir's own tolerances take a gain of 1.2, an offset of 0.15 and one element 10 sigma off; 2 % of signs are too many."""
    x = normal()
    one = x.copy()
    one[5] += 10
    zeroed = x.copy()
    zeroed[::100] = 0
    flipped = x.copy()
    flipped[::50] *= -1
    for target, cosine, euclid in (
        (x * np.float32(1.15), 1.0, 0.861),
        (x * np.float32(1.2), 1.0, 0.818),
        (x + np.float32(0.15), 0.989, 0.850),
        (one, 0.988, 0.844),
        (zeroed, 0.997, 0.922),
    ):
        found = compare_pair("x", target, x, LOOSE)
        assert found.likeness.word == "SIMILAR"
        assert found.passed
        assert found.likeness.cosine == pytest.approx(cosine, abs=0.012)
        assert found.likeness.euclid == pytest.approx(euclid, abs=0.03)
        assert compare_pair("x", target, x, LOOSE, step=0.01).outside > 0
        assert not compare_pair("x", target, x, LOOSE, step=0.01).passed
    assert word(flipped, x) == "NOT_SIMILAR"


def test_similarities_follow_their_documented_formulas():
    a, b = np.array([3.0, 4.0], np.float32), np.array([4.0, 3.0], np.float32)
    found = compare_pair("x", a, b, Tolerances(cosine=0.9, euclid=0.7)).likeness
    assert found.cosine == pytest.approx(24 / 25)
    assert found.euclid == pytest.approx(1 - math.sqrt(2) / (math.sqrt(24.5) + 1e-7))
    assert found.sqnr == pytest.approx(10 * math.log10(0.5 / 2.0))
    assert found.word == "SIMILAR"
    assert word(a, b, Tolerances(cosine=24 / 25, euclid=0.7)) == "NOT_SIMILAR"


@pytest.mark.parametrize(("error", "order"), [(4e-6, 5), (4e-5, 4), (4e-4, 3)])
def test_close_reports_the_largest_matching_order(error, order):
    x = np.linspace(1, 2, 50)
    found = compare_pair("x", x * (1 + error), x, LOOSE).likeness
    assert (found.word, found.order) == ("CLOSE", order)
    strict = compare_pair("x", x * (1 + error), x, Tolerances(close_order=order + 1)).likeness
    assert strict.word == "SIMILAR"


def test_a_match_to_two_digits_is_similar_not_close():
    x = np.linspace(1, 2, 50)
    assert compare_pair("x", x * 1.004, x, LOOSE).likeness.word == "SIMILAR"


def test_int8_is_equal_or_fails_unless_asked():
    x = np.arange(-100, 100, dtype=np.int8)
    y = x.copy()
    y[3] += 1
    found = compare_pair("x", y, x, LOOSE)
    assert (found.likeness.word, found.passed, found.unequal, found.largest, found.worst) == (
        "NOT_EQUAL",
        False,
        1,
        1.0,
        (3,),
    )
    assert compare_pair("x", y, x, Tolerances(int8_equal=False)).passed
    assert compare_pair("x", x, x, LOOSE).likeness.word == "EQUAL"
    wide = np.array([(1 << 62) + 1, 5], np.int64)
    assert compare_pair("x", wide, wide - np.array([1, 0]), LOOSE).largest == 1.0


def test_uint16_is_compared_as_bfloat16_and_measured_in_codes():
    x = (normal(100).view(np.uint32) >> 16).astype(np.uint16)
    y = x ^ np.uint16(1)
    found = compare_pair("x", y, x, LOOSE)
    assert found.likeness.word == "SIMILAR"
    assert found.largest == 1.0


def test_nan_and_infinity_fail_where_the_original_ignores_them():
    x = normal(16)
    broken = x.copy()
    broken[3] = np.nan
    endless = x.copy()
    endless[2] = np.inf
    for target, reference, fault in (
        (broken, broken, "target has nan at [3], 1 such"),
        (x, broken, "reference has nan at [3]"),
        (endless, endless, "target has inf at [2]"),
        (x.reshape(4, 4), x, "shape [4, 4] against [16]"),
        (x.astype(np.float64), x, "float64 against float32"),
        (x.astype(np.int8), x, "int8 against float32"),
    ):
        found = compare_pair("x", target, reference, LOOSE)
        assert not found.passed
        assert found.likeness.word == "NOT_MATCH"
        assert found.fault.startswith(fault)
    assert not compare_arrays({"a": x}, {"b": x}, LOOSE, {}).passed
    assert not compare_arrays({}, {}, LOOSE, {}).passed
    assert not compare_arrays({"a": x}, {"a": x}, LOOSE, {"b": 0.5}).passed
    zero = likeness(np.zeros(3), np.ones(3), LOOSE)
    assert zero.word == "NOT_SIMILAR"
    assert math.isnan(zero.cosine)


@pytest.mark.parametrize("step", [0.1, 0.0375, 1 / 3, 2.0**-7])
def test_correct_rounding_is_within_half_a_step(step):
    """Every multiple that is nearest is accepted, ties both ways; the next one never is."""
    x = np.concatenate([normal(2000) * 3, np.arange(-40, 40) * step / 2]).astype(np.float32)
    for mode in (lambda v: np.ceil(v - 0.5), lambda v: np.floor(v + 0.5), np.rint):
        nearest = (mode(x.astype(np.float64) / step) * step).astype(np.float32)
        good = compare_pair("x", nearest, x, LOOSE, step)
        assert good.outside == 0
        assert good.in_steps <= 0.5 + 1e-4
        away = nearest + np.float32(step) * np.where(nearest >= x, 1, -1).astype(np.float32)
        assert compare_pair("x", away, x, LOOSE, step).outside == x.size


def save(path: Path, **arrays: np.ndarray) -> str:
    np.savez(path, **arrays)
    return str(path)


def test_the_command_prints_its_findings(tmp_path: Path, capsys):
    x = normal(64).reshape(8, 8)
    a = save(tmp_path / "a.npz", x=x * np.float32(1.02), same=x, extra=x)
    b = save(tmp_path / "b.npz", same=x, x=x, other=x)
    assert main(["compare", a, b, "--euclid", "0.95"]) == 0
    out = capsys.readouterr().out
    assert "passed (1 EQUAL, 1 SIMILAR)" in out
    assert "only in TARGET: extra" in out
    assert "only in REFERENCE: other" in out
    assert main(["compare", a, b, "--euclid", "0.95", "--step", "x=0.001"]) == 1
    assert "elements are further than half a step of 0.001 from the reference" in capsys.readouterr().out
    assert main(["compare", a, b, "--euclid", "0.999"]) == 1
    assert "failed: 1 of 2 arrays (1 EQUAL, 1 NOT_SIMILAR)" in capsys.readouterr().out


def test_json_is_one_object_without_nan(tmp_path: Path, capsys):
    x = np.array([0.0, 1.0], np.float32)
    a, b = save(tmp_path / "a.npz", x=x + np.float32(1)), save(tmp_path / "b.npz", x=x)
    assert main(["compare", a, b, "--json"]) == 1
    told = json.loads(capsys.readouterr().out)
    assert told["passed"] is False
    (pair,) = told["arrays"]
    assert (pair["name"], pair["relative"], pair["largest"], pair["likeness"]["word"]) == (
        "x",
        "inf",
        1.0,
        "NOT_SIMILAR",
    )


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--close", "0"], "must be a whole number from 1 to 15"),
        (["--cosine", "2"], "must be a number from -1 to 1"),
        (["--step", "x"], "must be NAME=SCALE"),
        (["--step", "x=-1"], "the scale a positive number"),
        (["--step", "x=1", "--step", "x=2"], "one name is given twice"),
    ],
)
def test_wrong_arguments_are_refused_by_name(arguments, message, tmp_path: Path, capsys):
    a = save(tmp_path / "a.npz", x=np.ones(2))
    assert main(["compare", a, a, *arguments]) == 2
    assert message in capsys.readouterr().err


def test_files_that_are_no_archives_of_numbers_are_refused(tmp_path: Path, capsys):
    good, bad = save(tmp_path / "a.npz", x=np.ones(2)), tmp_path / "b.npz"
    assert main(["compare", good, str(bad)]) == 2
    assert "b.npz: cannot be read" in capsys.readouterr().err
    np.savez(bad, x=np.array([{}, 1], object))
    assert main(["compare", good, str(bad)]) == 2
    assert "pickled objects are refused" in capsys.readouterr().err
    with zipfile.ZipFile(bad, "w", zipfile.ZIP_DEFLATED) as archive:
        stream = io.BytesIO()
        np.save(stream, np.zeros(4))
        archive.writestr("x.npy", stream.getvalue().replace(b"(4,), }" + b" " * 6, b"(4000000,), }"))
    assert main(["compare", good, str(bad)]) == 2
    assert "needs 32000000 bytes, the archive holds 32" in capsys.readouterr().err
    save(bad, y=np.ones(2))
    assert main(["compare", good, str(bad)]) == 1
    assert "no name in common" in capsys.readouterr().out
