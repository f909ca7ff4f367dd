"""Train float, 8-bit and 4-bit networks on scikit-learn's digits, and run the trained ones on integers."""

from __future__ import annotations

import argparse
import io
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path

import torch
import torch.nn.functional as F
from sklearn.datasets import load_digits
from torch import Tensor, nn

from quantizer import nn as qnn
from quantizer.core import QuantizerError
from quantizer.core.files import replace_files
from quantizer.nn import FIX_FIXED, FIX_NONE, default_fix_cfg

TRAINING = 1437
"""Images to train on, the first four fifths; the other 360 are from other writers."""
BATCH = 64
SLOWER_AT = 8
"""Epoch from which the learning rate is a tenth."""


class Net(qnn.FixTopModule):
    """Two folded convolutions and a classifier, each result on a grid of *bits* bits."""

    def __init__(self, bits: int) -> None:
        super().__init__()
        self.fix0 = self.activation(bits)
        self.conv1 = qnn.ConvBN_fix(1, 16, 3, padding=1, nf_fix_params=self.constants(bits))
        self.fix1 = self.activation(bits)
        self.conv2 = qnn.ConvBN_fix(16, 32, 3, padding=1, nf_fix_params=self.constants(bits))
        self.fix2 = self.activation(bits)
        self.fc = qnn.Linear_fix(128, 10, nf_fix_params=self.constants(bits))
        self.fix3 = self.activation(8)

    @staticmethod
    def activation(bits: int) -> qnn.Activation_fix:
        """Grids that begin at the smallest value: after relu no code is spent on negative ones."""
        return qnn.Activation_fix(nf_fix_params=default_fix_cfg(["activation"], bitwidth=bits, zero_point=True))

    @staticmethod
    def constants(bits: int) -> dict[str, dict[str, object]]:
        """A scale for each filter; biases in [-8, 8), in steps that every sum has."""
        weight = default_fix_cfg(["weight"], bitwidth=bits, group="batch")
        return {**weight, "bias": {"method": FIX_FIXED, "bitwidth": bits + 2, "scale": 8.0}}

    def forward(self, x: Tensor) -> Tensor:
        """Return logits [n, 10] of images [n, 1, 8, 8]."""
        x = self.fix1(F.max_pool2d(F.relu(self.conv1(self.fix0(x))), 2))
        x = self.fix2(F.max_pool2d(F.relu(self.conv2(x)), 2))
        return self.fix3(self.fc(x.flatten(1)))


@dataclass
class Run:
    """One network in training."""

    name: str
    model: Net
    optimizer: torch.optim.Optimizer
    losses: list[float] = field(default_factory=list)


def start(name: str, seed: int) -> Run:
    """Return a network with the initial values of *seed*: float, or with as many bits as its name says."""
    model = Net(8 if name == "float" else int(name.removesuffix("-bit")))
    if name == "float":
        model.set_fix_method(FIX_NONE)
    source = torch.Generator().manual_seed(seed)
    for layer in (model.conv1.conv, model.conv2.conv, model.fc):
        nn.init.kaiming_uniform_(layer.weight, nonlinearity="relu", generator=source)
    nn.init.zeros_(model.fc.bias)
    return Run(name, model, torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9, weight_decay=1e-4))


def epoch(run: Run, images: Tensor, labels: Tensor, seed: int) -> None:
    """Train one epoch; its order of images is that of the seed and the epoch's number, so that it can be repeated."""
    number = len(run.losses)  # of this epoch, also after a checkpoint was loaded
    for group in run.optimizer.param_groups:
        group["lr"] = 0.05 if number < SLOWER_AT else 0.005
    order = torch.randperm(len(images), generator=torch.Generator().manual_seed(seed * 1000 + number))
    total = 0.0
    run.model.train()
    for batch in order.split(BATCH):
        run.optimizer.zero_grad()
        loss = F.cross_entropy(run.model(images[batch]), labels[batch])
        loss.backward()
        run.optimizer.step()
        total += loss.item() * len(batch)
    run.losses.append(total / len(images))


def accuracy(run: Run, images: Tensor, labels: Tensor, steadied: Tensor) -> float:
    """Return the share of right answers in per cent, under the scales that the training images *steadied* give."""
    run.model.eval()
    with torch.no_grad():
        if run.name != "float":
            # one forward under AUTO sets the scales of activations, which FIXED then keeps
            run.model(steadied)
            run.model.set_fix_method(FIX_FIXED)
        right = (run.model(images).argmax(1) == labels).double().mean()
    return 100 * float(right)


def integers(run: Run, images: Tensor) -> str:
    """Return how many of the logits a graph of integers computes exactly as the trained network does."""
    graph = qnn.to_graph(run.model, images, name="digits")
    with torch.no_grad():
        equal = qnn.run_graph(graph, images) == run.model(images).double()
    return f"{int(equal.sum())} of {equal.numel()} logits equal, {len(graph.nodes)} nodes"


def save(path: Path, runs: list[Run]) -> None:
    """Write all runs in one step over what stands at *path*."""
    state = {
        run.name: {"model": run.model.state_dict(), "optimizer": run.optimizer.state_dict(), "losses": run.losses}
        for run in runs
    }
    file = io.BytesIO()
    torch.save(state, file)
    replace_files({path: [file.getvalue()]})


def resume(path: Path, runs: list[Run]) -> None:
    """Take all runs from a checkpoint; QuantizerError if it is not one."""
    try:
        # weights_only: a checkpoint is a pickle, and must not run code
        state = torch.load(path, weights_only=True)
        for run in runs:
            saved = state[run.name]
            run.model.load_state_dict(saved["model"])
            run.optimizer.load_state_dict(saved["optimizer"])
            run.losses = [float(loss) for loss in saved["losses"]]
    except Exception as err:
        raise QuantizerError(f"{path}: is not a checkpoint of this example. Name another file, or remove it.") from err


def main(arguments: list[str] | None = None) -> int:
    """Train, print accuracies, and go on from the checkpoint where there is one."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--epochs", type=int, default=10, help="epochs in all, those of the checkpoint included (10)")
    parser.add_argument("--seed", type=int, default=0, help="of initial values and of the order of images (0)")
    parser.add_argument("--checkpoint", type=Path, help="written after each epoch; training goes on from it")
    options = parser.parse_args(arguments)
    if options.epochs < 1 or options.seed < 0:
        parser.error("--epochs must be 1 or more, --seed 0 or more")
    torch.set_num_threads(1)  # images this small are no work to share, and sums keep one order
    digits = load_digits()
    pixels = torch.tensor(digits.images, dtype=torch.float32).unsqueeze(1) / 16
    labels = torch.tensor(digits.target)
    runs = [start(name, options.seed) for name in ("float", "8-bit", "4-bit")]
    begun = time.monotonic()
    if options.checkpoint and options.checkpoint.exists():
        resume(options.checkpoint, runs)
    try:
        while len(runs[0].losses) < options.epochs:
            for run in runs:
                epoch(run, pixels[:TRAINING], labels[:TRAINING], options.seed)
            if options.checkpoint:
                save(options.checkpoint, runs)
            shown = "  ".join(f"{run.name} {run.losses[-1]:.6f}" for run in runs)
            sys.stdout.write(f"epoch {len(runs[0].losses):2}  loss  {shown}\n")
    except KeyboardInterrupt:
        sys.stderr.write("interrupted; run again with the same --checkpoint to go on\n")
        return 130
    for run in runs:
        right = accuracy(run, pixels[TRAINING:], labels[TRAINING:], pixels[:TRAINING])
        note = "" if run.name == "float" else f"   integers: {integers(run, pixels[TRAINING:])}"
        sys.stdout.write(f"{run.name:>6}  accuracy {right:.2f} %{note}\n")
    sys.stdout.write(f"{time.monotonic() - begun:.1f} s\n")
    return 0


if __name__ == "__main__":
    try:
        raise SystemExit(main())
    except QuantizerError as error:
        raise SystemExit(f"{error}") from None
