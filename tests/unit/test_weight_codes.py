"""Methods that choose codes of weights, on their own; test_global_calibration.py has them in the flow."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from test_global_calibration import drawn
from torch import Tensor

from quantizer.cli import main
from quantizer.optimize.adaround import Schedule, adaround
from quantizer.optimize.gptq import gptq
from tests.unit.one_layer import noise, ran


def one_by_one(weights: np.ndarray, moments: np.ndarray, damping: float) -> np.ndarray:
    """Return whole numbers by optimal brain quantization, columns in order.

    After each column its row and column leave the inverse (a Gauss step), and the error is spread along what it was.
    """
    values, inverse = (
        weights.copy(),
        np.linalg.inv(moments + damping * moments.diagonal().mean() * np.eye(len(moments))),
    )
    for column in range(len(moments)):
        whole = np.rint(values[:, column])
        error = (values[:, column] - whole) / inverse[column, column]
        values[:, column + 1 :] -= np.outer(error, inverse[column, column + 1 :])
        values[:, column] = whole
        inverse = inverse - np.outer(inverse[:, column], inverse[column]) / inverse[column, column]
    return values


@pytest.mark.parametrize("block", [1, 3, 128])
def test_gptq_is_optimal_brain_quantization_in_blocks(block: int) -> None:
    weights, inputs = 3 * drawn(5, 8).double(), drawn(40, 8, seed=2).double() @ drawn(8, 8, seed=3).double()
    moments = inputs.T @ inputs
    found = gptq(weights, moments, torch.round, act_order=False, damping=0.01, block=block)
    assert np.array_equal(found.numpy(), one_by_one(weights.numpy(), moments.numpy(), 0.01))


def test_gptq_orders_columns_and_zeroes_unused_ones() -> None:
    weights, inputs = 3 * drawn(4, 6).double(), drawn(30, 6, seed=2).double() * torch.tensor([1, 9, 0, 5, 2, 7])
    moments = inputs.T @ inputs
    found = gptq(weights, moments, torch.round, act_order=True, damping=0.01, block=4)
    order = [1, 5, 3, 4, 0, 2]
    again = gptq(weights[:, order], moments[order][:, order], torch.round, act_order=False, damping=0.01, block=4)
    moments[2, 2] = 1.0  # as an unused column counts in the damping
    assert torch.equal(found[:, order], again)
    assert not found[:, 2].any()


def test_the_regularizer_falls_along_half_a_cosine() -> None:
    """By hand: of 10 steps 2 are warm; half-way between 2 and 10 the power is the mean of 20 and 2."""
    schedule = Schedule(1, 1, 0.1, 0.01, (20.0, 2.0), 0.2)
    assert [schedule.power(step, 10) for step in (0, 1)] == [None, None]
    assert schedule.power(2, 10) == 20.0
    assert schedule.power(6, 10) == pytest.approx(11.0)
    assert schedule.power(10, 10) == pytest.approx(2.0)


def test_adaround_starts_at_nearest_and_learns_from_the_error() -> None:
    steps = torch.tensor([0.2, 0.7, -1.3, -1.6, 2.0, 0.49])

    def pulled(codes: Tensor, places: slice) -> Tensor:
        assert (places.start, places.stop) in {(0, 2), (2, 4)}
        return (codes - torch.tensor([1.0, 0.0, -1.0, -2.0, 2.0, 1.0])).square().sum()

    still = Schedule(0, 2, 0.01, 0.01, (20.0, 2.0), 0.2)
    assert torch.equal(steps.floor() + adaround(steps, still, 4, pulled), steps.round())
    long = Schedule(200, 2, 0.05, 0.0, (20.0, 2.0), 0.2)
    assert (steps.floor() + adaround(steps, long, 4, pulled)).tolist() == [1.0, 0.0, -1.0, -2.0, 2.0, 1.0]


def test_columns_that_samples_do_not_tell_apart_need_damping(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    given = {"weights": noise(3, 6), "biases": noise(3)}
    alike = np.ones((2, 6), np.float32)
    ran(tmp_path, "FullyConnected", [[alike]], [(2, 3)], "num_output=3\n", given, output_dir="out")
    cfg = (tmp_path / "opt.cfg").read_text()
    for damping, code in (("0", 2), ("0.01", 0)):
        (tmp_path / "opt.cfg").write_text(f"{cfg}global_calibration = gptq_zy[1,1,{damping}]\n")
        assert main(["optimize", "--cfg", "opt.cfg"]) == code
    said = capsys.readouterr().err
    assert "error: layer 'one': gptq_zy: damping 0: the Hessian of 6 columns has no inverse" in said
    assert "such as 0.01, into gptq_zy[batches,act_order,damping,block]" in said
