"""The example that quantizes a trained network, as a user runs it: each configuration's loss, and the cfg files."""

from __future__ import annotations

import importlib.util
import re
import sys
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType

import pytest
import torch

from quantizer.cli import main

pytestmark = pytest.mark.skipif(find_spec("sklearn") is None, reason="the example's data: pip install scikit-learn")
SCRIPT = Path(__file__).parents[2] / "examples" / "digits" / "quantize_digits.py"


@pytest.fixture(autouse=True)
def kernels_of_a_fresh_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """Turn oneDNN on, which sessions of other tests turn off."""
    monkeypatch.setattr(torch.backends.mkldnn, "enabled", True)


@pytest.fixture(scope="module")
def script() -> ModuleType:
    spec = importlib.util.spec_from_file_location("quantize_digits", SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


def test_the_loss_table_matches_the_written_cfg_files(
    script: ModuleType, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert script.main(["--output", str(tmp_path)]) == 0
    shown = capsys.readouterr().out
    found = re.findall(r"^(\S.*?) +([\d.]+)% +(-?[\d.]+) +([\d.]+) +[\d.]+$", shown, re.MULTILINE)
    rows = {name: tuple(map(float, numbers)) for name, *numbers in found}
    assert list(rows) == ["float", *script.CONFIGURATIONS]
    top1 = {name: numbers[0] for name, numbers in rows.items()}
    size = {name: numbers[2] for name, numbers in rows.items()}
    assert top1["float"] > 90
    for name in ("int8", "mixed"):
        assert top1["float"] - top1[name] <= 0.5
    assert top1["w4a8"] < top1["w4a8 gptq"]
    assert size["w4a8"] < 0.6 * size["int8"] < 0.25 * size["float"]
    before = (tmp_path / "int8" / "int8_o.bin").read_bytes()
    (tmp_path / "int8" / "int8_o.bin").unlink()
    assert main(["optimize", "--cfg", str(tmp_path / "int8.cfg")]) == 0
    assert (tmp_path / "int8" / "int8_o.bin").read_bytes() == before


def test_a_wrong_option_is_refused(script: ModuleType, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        script.main(["--seed", "-1"])
    assert caught.value.code == 2
    assert "--epochs must be 1 or more, --seed 0 or more" in capsys.readouterr().err
