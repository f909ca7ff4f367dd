"""The example as a user runs it: accuracy, integers, checkpoints, broken files."""

from __future__ import annotations

import importlib.util
import re
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType

import pytest
import torch

from quantizer.core.errors import QuantizerError

pytestmark = pytest.mark.skipif(find_spec("sklearn") is None, reason="the example's data: pip install scikit-learn")
SCRIPT = Path(__file__).parents[2] / "examples" / "digits_fixed" / "train.py"


@pytest.fixture(scope="module")
def whole() -> str:
    done = subprocess.run([sys.executable, str(SCRIPT)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture(autouse=True)
def kernels_of_a_fresh_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """Turn oneDNN on, which sessions of other tests turn off."""
    monkeypatch.setattr(torch.backends.mkldnn, "enabled", True)


@pytest.fixture(scope="module")
def script() -> ModuleType:
    spec = importlib.util.spec_from_file_location("digits_fixed_train", SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


def test_eight_bits_lose_under_one_percent_and_integers_agree(whole: str) -> None:
    found = {name: float(value) for name, value in re.findall(r"^ *(\S+)  accuracy (\S+) %", whole, re.MULTILINE)}
    assert set(found) == {"float", "8-bit", "4-bit"}
    assert found["float"] > 90
    assert found["8-bit"] >= found["float"] - 1
    assert found["4-bit"] > 85
    assert whole.count("integers: 3600 of 3600 logits equal") == 2


def test_an_interrupted_training_goes_on_to_the_same_losses(
    whole: str, script: ModuleType, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    checkpoint = str(tmp_path / "run.pt")
    losses = []
    for epochs in ("1", "3"):
        assert script.main(["--epochs", epochs, "--checkpoint", checkpoint]) == 0
        losses += [line for line in capsys.readouterr().out.splitlines() if line.startswith("epoch")]
    assert losses == whole.splitlines()[:3]


def test_a_file_that_is_not_a_checkpoint_gets_one_line(script: ModuleType, tmp_path: Path) -> None:
    broken = tmp_path / "run.pt"
    broken.write_bytes(b"no checkpoint")
    with pytest.raises(QuantizerError) as caught:
        script.main(["--checkpoint", str(broken)])
    assert str(caught.value) == f"{broken}: is not a checkpoint of this example. Name another file, or remove it."
    assert broken.read_bytes() == b"no checkpoint"


def test_a_wrong_option_is_refused(script: ModuleType, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        script.main(["--epochs", "0"])
    assert caught.value.code == 2
    assert "--epochs must be 1 or more" in capsys.readouterr().err
