"""Layers of one input that no spec names, restated in numpy from the formulas of the Compass Optimizer."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from quantizer.core.errors import GraphError, UnsupportedError
from tests.unit.one_layer import SCHEMES, Array, Ran, noise, ran

F32 = np.float32
WIDE = [noise(1, 3, 4, 5), noise(1, 3, 4, 5, seed=2)]
UNIT = [(values / 8).astype(F32) for values in WIDE]
ABOVE = [(1 + np.abs(values)).astype(F32) for values in WIDE]
RESTRICTED = {"quantize_method_for_activation": "per_tensor_symmetric_restricted_range"}
TABLES: dict[str, tuple[str, str, list[Array], bool, Callable[[Array], Array]]] = {
    "acos": ("Acos", "", UNIT, True, np.arccos),
    "acosh": ("Acosh", "", ABOVE, False, np.arccosh),
    "asin": ("Asin", "", UNIT, True, np.arcsin),
    "asinh": ("Asinh", "", WIDE, True, np.arcsinh),
    "atanh": ("Atanh", "", UNIT, True, np.arctanh),
    "bnll": ("BNLL", "", WIDE, False, lambda x: np.logaddexp(0, x)),
    "cosh": ("Cosh", "", WIDE, False, np.cosh),
    "shrink": (
        "SHRINK",
        "lambd=0.5\nbias=0.25\n",
        WIDE,
        True,
        lambda x: np.where(np.abs(x) > 0.5, x - np.sign(x) / 4, 0),
    ),
    "sinh": ("Sinh", "", WIDE, True, np.sinh),
    "swish": ("Swish", "alpha=1.5\n", WIDE, True, lambda x: x / (1 + np.exp(-1.5 * x))),
    "trunc": ("Trunc", "", WIDE, True, np.trunc),
    "activation swish": ("Activation", "method=SWISH\nalpha=0.5\n", WIDE, True, lambda x: x / (1 + np.exp(-0.5 * x))),
    "activation shrink": (
        "Activation",
        "method=SHRINK\nlambd=1.0\nbias=0.0\n",
        WIDE,
        True,
        lambda x: np.where(np.abs(x) > 1, x, 0),
    ),
}


def points(first: float, last: float, count: int) -> Array:
    """Return float32 points as torch.linspace gives them where the processor fuses."""
    step, place = float(F32(last - first) / F32(count - 1)), np.arange(count)
    return np.where(place < count // 2, first + step * place, last - step * (count - 1 - place)).astype(F32)


def read(table: Array, place: Array, rest: int) -> Array:
    """Return entries on the chord between two, cut down; the last entry occurs twice."""
    padded, index = np.append(table, table[-1]), place >> rest
    return padded[index] + ((padded[index + 1] - padded[index]) * (place & ((1 << rest) - 1)) >> rest)


@pytest.mark.parametrize("scheme", [*SCHEMES, "restricted"])
@pytest.mark.parametrize("name", TABLES)
def test_table_layers_equal_their_formula(tmp_path: Path, name: str, scheme: str) -> None:
    """f at even points between the codes' ends, the first twice where codes are restricted (but for BNLL); read as tables are."""
    kind, lines, samples, signed, f = TABLES[name]
    cfg: Any = SCHEMES.get(scheme, RESTRICTED)
    made = ran(tmp_path, kind, [samples], [samples[0].shape], lines, **cfg)
    bits = int(cfg.get("activation_bits", 8))
    assert made.ends("y0")[0] == (-(2 ** (bits - 1)) + (scheme == "restricted") if signed else 0)
    dtype, entries = made.constants["lut"]
    assert dtype == f"{'' if signed else 'u'}int{bits}"
    table = entries.astype(np.int64)
    low, high = made.ends("x0")
    size = 2 ** min(bits, int(cfg.get("lut_items_in_bits", 8)))
    twice = scheme == "restricted" and low < 0 and name != "bnll"
    spots = points(low, high, size - twice)
    spots = np.append(spots[:1], spots) if twice else spots
    real = ((spots + F32(made.zero("x0"))) * (F32(1) / made.scale("x0"))).astype(np.float64)
    with np.errstate(invalid="ignore", divide="ignore"):
        value = np.nan_to_num(f(real).astype(F32) * made.scale("y0") - made.zero("y0"), nan=0.0)
    wanted = np.clip(np.rint(value), *made.ends("y0")).astype(np.int64)
    nearest = np.abs(value - np.floor(value) - 0.5) > np.abs(value) * 2.0**-20 + 2.0**-20
    if name != "trunc":
        assert np.array_equal(table[nearest], wanted[nearest])
    assert (table == wanted).mean() > 0.9
    start = low - (scheme == "restricted" and low < 0 and name != "bnll")
    got = read(table, made.inputs[0].astype(np.int64) - start, bits - int(np.log2(size)))
    assert np.array_equal(made.outputs[0], got)


def test_params_held_in_the_table_are_dropped_as_in_the_original(tmp_path: Path) -> None:
    shrunk = ran(tmp_path, "SHRINK", [WIDE], [WIDE[0].shape], "lambd=0.5\nbias=0.25\n")
    assert not {"lambd", "bias"} & shrunk.params.keys()
    assert ran(tmp_path, "Swish", [WIDE], [WIDE[0].shape], "alpha=1.5\n").params["alpha"] == 1.5


@pytest.mark.parametrize(("kind", "low"), [("Cosh", -128), ("BNLL", -128), ("Acosh", 0)])
def test_signs_that_are_forced(tmp_path: Path, kind: str, low: int) -> None:
    """Acosh stays unsigned: the original forgets force_dtype_int there."""
    made = ran(tmp_path, kind, [ABOVE], [ABOVE[0].shape], force_dtype_int=True)
    assert made.ends("y0")[0] == low


SLOPES = noise(5) / 8
SHIFT_FIRST = ["shift_value", "shift_type", "scale_value", "scale_type"]


def rectified(folder: Path, kind: str, scheme: str) -> Ran:
    lines = "" if kind == "PRELU" else "axis=3\n"
    constants = {"negative_slope": SLOPES} if kind == "PRELU" else None
    shape = (1, 3, 4, 5 if kind == "PRELU" else 10)
    return ran(folder, kind, [WIDE], [shape], lines, constants, **SCHEMES[scheme])


@pytest.mark.parametrize("scheme", SCHEMES)
def test_prelu_multiplies_negative_codes_by_int16_slopes(tmp_path: Path, scheme: str) -> None:
    """Slopes of 12 places in int16; codes below 0 are multiplied and rounded, then all are brought to the output's scale."""
    made = rectified(tmp_path, "PRELU", scheme)
    dtype, slopes = made.constants["negative_slope"]
    assert dtype == "int16"
    assert slopes.tolist() == np.rint(SLOPES * 2**12).tolist()
    assert [key for key in made.params if "s" in key][:5] == ["negative_slope_shift", *SHIFT_FIRST]
    centred = made.inputs[0].astype(np.int64) + made.zero("x0")
    held = np.rint(np.minimum(centred, 0) * slopes.astype(np.float64) * 2.0**-12) + np.maximum(centred, 0)
    codes = np.clip(np.rint(held * made.ratio()) - made.zero("y0"), *made.ends("y0"))
    assert made.ends("y0")[0] < 0
    assert np.array_equal(made.outputs[0], codes.astype(np.int64))


@pytest.mark.parametrize("scheme", SCHEMES)
def test_crelu_joins_both_signs_as_unsigned_codes(tmp_path: Path, scheme: str) -> None:
    """Positive parts of the codes and of their negatives side by side, unsigned."""
    made = rectified(tmp_path, "CRELU", scheme)
    centred = made.inputs[0].astype(np.int64) + made.zero("x0")
    held = np.concatenate([np.maximum(centred, 0), np.maximum(-centred, 0)], 3)
    codes = np.clip(np.rint(held * made.ratio()) - made.zero("y0"), *made.ends("y0"))
    assert made.ends("y0")[0] == 0
    assert np.array_equal(made.outputs[0], codes.astype(np.int64))


@pytest.mark.parametrize("scheme", [*SCHEMES, "restricted", "ten bits"])
def test_a_sign_has_scale_1(tmp_path: Path, scheme: str) -> None:
    """-1, 0 and 1 are codes: scale 1, zero point 0, signed, with the bits of the input, without calibration."""
    cfg: Any = {"ten bits": {"activation_bits": 10}, "restricted": RESTRICTED}.get(scheme) or SCHEMES.get(scheme, {})
    values = [np.array([[-3.0, -1e-6, 0.0, 1e-6, 5.0]], dtype=F32)]
    made = ran(tmp_path, "Sign", [values], [values[0].shape], **cfg)
    bits = int(cfg.get("activation_bits", 8))
    stored = {8: "int8", 10: "aligned_int12", 16: "int16"}[bits]
    ends = -(2 ** (bits - 1)), 2 ** (bits - 1) - 1
    top = made.text.rpartition("layer_type=Sign")[2].splitlines()
    assert (made.scale("y0"), made.zero("y0"), made.ends("y0")) == (1.0, 0, ends)
    assert {f"layer_top_type=[{stored}]", "layer_top_scale=[1.0]", "layer_top_zp=[0]"} <= set(top)
    assert f"layer_top_range=[[{ends[0]},{ends[1]}]]" in top
    assert made.outputs[0].tolist() == np.sign(made.inputs[0].astype(np.int64) + made.zero("x0")).tolist()
    assert set(made.outputs[0].reshape(-1).tolist()) == {-1, 0, 1}


def test_a_sign_of_real_values(tmp_path: Path) -> None:
    values = [np.array([[-3.0, -1e-6, 0.0, 1e-6, 5.0]], dtype=F32)]
    made = ran(tmp_path, "Sign", [values], [values[0].shape], trigger_float_op="disable & <[Sign]:float32_preferred!>")
    assert "layer_type=DeQuantize" in made.text
    assert made.outputs[0].dtype == np.float32
    assert made.outputs[0].reshape(-1).tolist() == [-1.0, 0.0, 0.0, 0.0, 1.0]


def test_errors_name_what_is_missing(tmp_path: Path) -> None:
    with pytest.raises(GraphError, match="SWISH without alpha: write alpha="):
        ran(tmp_path, "Swish", [WIDE], [WIDE[0].shape])
    with pytest.raises(GraphError, match="PRELU without constant 'negative_slope'"):
        ran(tmp_path, "PRELU", [WIDE], [WIDE[0].shape])
    with pytest.raises(GraphError, match="CRELU: axis=4: must be one of 4 axes"):
        ran(tmp_path, "CRELU", [WIDE], [WIDE[0].shape], "axis=4\n")
    with pytest.raises(UnsupportedError, match="SINH has one scale for its activations"):
        per_channel = "per_channel_symmetric_full_range"
        ran(tmp_path, "Sinh", [WIDE], [WIDE[0].shape], quantize_method_for_activation=per_channel)
