"""Plugin functions that take batches, as a user sees them: judged like others, and red if they mix trials."""

import pytest

PLUGIN = """
import torch

from quantizer.ops import operator
from quantizer.ops.relu import quantized as own


@operator("relu", version="2.0", platform="ideal", batched=True)
def quantized_ideal(x, *, parameters):
    return torch.stack([own(x[k], parameters=parameters[{place}]) for k in range(len(parameters))])
"""


@pytest.mark.parametrize(
    ("place", "code", "said"),
    [
        ("k", 0, "1 passed"),
        ("0", 1, "relu-a8-ideal: repeat: 1 of 1 elements outside their interval (trial 1 of a batch of "),
    ],
)
def test_a_batched_function_is_judged_in_its_own_process(tmp_path, place, code, said, warmed):
    """The second function reads the parameters of the first trial for all trials: each single case is correct."""
    (tmp_path / "tox.ini").write_text("[pytest]\n")
    (tmp_path / "batches.py").write_text(PLUGIN.format(place=place))
    options = ["--op-plugins=batches.py", "--op-shipped=relu", "-k", "relu-a8-ideal", "-p", "no:cacheprovider", "-n0"]
    done = warmed.run("pytest", "-q", *options, cwd=tmp_path)
    assert done.returncode == code, done.stdout + done.stderr
    assert said in done.stdout
