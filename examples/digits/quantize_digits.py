"""Train a small network on scikit-learn's digits, write it as Compass IR, quantize it under five configurations, and compare."""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from sklearn.datasets import load_digits
from torch import Tensor, nn
from torch.nn import functional

from quantizer.core import Library, load_library
from quantizer.core.dtypes import DTYPES
from quantizer.ir import Graph, Node
from quantizer.ir import Tensor as GraphTensor
from quantizer.ir.formats import compass
from quantizer.ops import load_built_ins
from quantizer.optimize import optimize, read_cfg

TRAINING = 1437
"""Images to train on, the first four fifths; the other 360 are from other writers."""
BATCH = 64
THRESHOLD = 0.005
"""What int8 may lose, and what the search for mixed precision has to reach: half a point."""
PER_CHANNEL = {"quantize_method_for_weight": "per_channel_symmetric_restricted_range"}
FOUR_BITS = {"weight_bits": "4"}
CONFIGURATIONS: Mapping[str, Mapping[str, str]] = {
    "int8": PER_CHANNEL,
    "int8 per tensor": {},
    "w4a8": FOUR_BITS,
    "w4a8 gptq": {**FOUR_BITS, **PER_CHANNEL, "global_calibration": "gptq_zy[8]"},
    "mixed": {**FOUR_BITS, "mixed_precision_auto_search": f"100,{THRESHOLD},L"},
}
"""Name -> fields of the cfg in addition to the common ones."""


@dataclass(frozen=True)
class Row:
    """One line of the table."""

    name: str
    top1: float
    """Share of right answers."""
    size: int
    """Bits of all constants, in bytes."""
    seconds: float


def trained(images: Tensor, labels: Tensor, *, epochs: int, seed: int) -> nn.Sequential:
    """Return two convolutions and a classifier, trained on images [n, 1, 8, 8]; the same for the same seed."""
    source = torch.Generator().manual_seed(seed)
    model = nn.Sequential(
        nn.Conv2d(1, 16, 3, padding=1),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(16, 32, 3, padding=1),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(128, 10),
    )
    for layer in (model[0], model[3], model[7]):
        nn.init.kaiming_uniform_(layer.weight, nonlinearity="relu", generator=source)
        nn.init.zeros_(layer.bias)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.003)
    for _ in range(epochs):
        for batch in torch.randperm(len(images), generator=source).split(BATCH):
            optimizer.zero_grad()
            functional.cross_entropy(model(images[batch]), labels[batch]).backward()
            optimizer.step()
    return model.eval()


class Writer:
    """A chain of layers in Compass's axis order: channels last."""

    def __init__(self) -> None:
        self.nodes: list[Node] = []
        self.tensors = {"image": GraphTensor("image", (1, 8, 8, 1), DTYPES["float32"])}

    def add(self, name: str, op: str, shape: tuple[int, ...], *constants: Tensor, **more: object) -> None:
        """Add a layer that reads the one before it."""
        source = self.nodes[-1].outputs[0] if self.nodes else "image"
        made = [GraphTensor(f"{name}:{i}", tuple(c.shape), DTYPES["float32"], c) for i, c in enumerate(constants)]
        for tensor in (*made, GraphTensor(name, shape, DTYPES["float32"])):
            self.tensors[tensor.name] = tensor
        inputs = (source, *(tensor.name for tensor in made))
        self.nodes.append(Node(name, op, inputs, (name,), order="channels_last", **more))  # type: ignore[arg-type]

    def files(self, library: Library) -> tuple[str, bytes]:
        """Return text and constants."""
        graph = Graph("digits", tuple(self.nodes), self.tensors, ("image",), (self.nodes[-1].name,))
        return compass.to_bytes(compass.foreign(graph, library.specs))


def written(model: nn.Sequential, library: Library) -> tuple[str, bytes]:
    """Return the trained network as Compass IR."""
    window = {"stride": (1, 1), "padding": (1, 1, 1, 1), "dilation": (1, 1), "groups": 1}
    pool = {"kernel": (2, 2), "stride": (2, 2), "padding": (0, 0, 0, 0), "ceil_mode": False}
    writer = Writer()
    for place, (index, size, channels) in enumerate(((0, 8, 16), (3, 4, 32)), start=1):
        weight, bias = (values.detach() for values in model[index].parameters())
        # [out, in, h, w] in torch, [out, h, w, in] in Compass's files
        last = weight.permute(0, 2, 3, 1).contiguous()
        writer.add(f"conv{place}", "conv2d", (1, size, size, channels), last, bias, attrs=window, activation="relu")
        writer.add(f"pool{place}", "max_pool2d", (1, size // 2, size // 2, channels), attrs=pool)
    weight, bias = (values.detach() for values in model[7].parameters())
    # torch flattened images with channels first, the graph flattens them with channels last
    rows = weight.reshape(10, 32, 2, 2).permute(0, 2, 3, 1).reshape(10, 128).contiguous()
    writer.add("flat", "reshape", (1, 128), attrs={"shape": (1, 128)})
    writer.add("logits", "fully_connected", (1, 10), rows, bias)
    return writer.files(library)


def quantized(folder: Path, name: str, fields: Mapping[str, str], library: Library) -> tuple[Row, Row]:
    """Quantize the network in *folder* under a cfg of its own; return the row of it, and that of the float network."""
    stem = name.replace(" ", "_")
    given = {
        "graph": folder / "digits.txt",
        "bin": folder / "digits.bin",
        "model_name": stem,
        "output_dir": folder / stem,
        "dataset": "NumpyDataset",
        "calibration_data": folder / "calibration.npy",
        "calibration_batch_size": 32,
        "calibration_strategy_for_activation": "extrema",
        "metric": "TopKMetric",
        "data": folder / "images.npy",
        "label": folder / "labels.npy",
        "metric_batch_size": 90,
        **fields,
    }
    path = folder / f"{stem}.cfg"
    path.write_text("[Common]\n" + "".join(f"{key} = {value}\n" for key, value in given.items()), encoding="utf-8")
    start = time.perf_counter()
    work = optimize(read_cfg(path), library)
    seconds = time.perf_counter() - start
    scores = {score.graph: float(score.value) for score in work.scores}
    sizes = {kind: stored(folder / file) for kind, file in (("quantized", f"{stem}/{stem}_o"), ("float", "digits"))}
    return Row(name, scores["quantized"], sizes["quantized"], seconds), Row(
        "float", scores["float"], sizes["float"], 0.0
    )


def stored(stem: Path) -> int:
    """Return the bytes that an IR's constants take: codes of four bits half a byte, though the file gives them a whole one."""
    graph = compass.read(stem.with_suffix(".txt"), stem.with_suffix(".bin"))
    return sum(t.data.numel() * t.dtype.bits for t in graph.tensors.values() if t.data is not None) // 8


def compared(folder: Path, *, epochs: int, seed: int) -> list[Row]:
    """Train, write every file into *folder*, and return the rows of the table: float first."""
    library = load_library()
    load_built_ins()
    data = load_digits()
    images = torch.from_numpy(data.images).float()[:, None] / 16
    labels = torch.from_numpy(data.target).long()
    model = trained(images[:TRAINING], labels[:TRAINING], epochs=epochs, seed=seed)
    text, blob = written(model, library)
    (folder / "digits.txt").write_text(text, encoding="utf-8")
    (folder / "digits.bin").write_bytes(blob)
    last = images.movedim(1, -1).numpy()
    np.save(folder / "calibration.npy", last[:256])
    np.save(folder / "images.npy", last[TRAINING:])
    np.save(folder / "labels.npy", labels[TRAINING:].numpy())
    pairs = [quantized(folder, name, fields, library) for name, fields in CONFIGURATIONS.items()]
    # every configuration measured the same float network
    return [pairs[0][1], *(row for row, _ in pairs)]


def table(rows: list[Row]) -> str:
    """Return the rows as text."""
    lines = [f"{'':<16} {'top-1':>7} {'lost':>6} {'kB':>6} {'s':>5}"]
    lines += [
        f"{row.name:<16} {100 * row.top1:>6.2f}% {100 * (rows[0].top1 - row.top1):>6.2f} {row.size / 1024:>6.1f} {row.seconds:>5.1f}"
        for row in rows
    ]
    return "\n".join(lines)


def main(arguments: list[str] | None = None) -> int:
    """Print the table; 1 where int8 loses more than half a point, or the search misses its threshold."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--epochs", type=int, default=15, help="of training (15)")
    parser.add_argument("--seed", type=int, default=0, help="of initial values and of the order of images (0)")
    parser.add_argument(
        "--output", type=Path, help="folder for the IR, the data and the cfg files; else they are not kept"
    )
    options = parser.parse_args(arguments)
    if options.epochs < 1 or options.seed < 0:
        parser.error("--epochs must be 1 or more, --seed 0 or more")
    with tempfile.TemporaryDirectory() as spare:
        folder = options.output or Path(spare)
        folder.mkdir(parents=True, exist_ok=True)
        rows = compared(folder, epochs=options.epochs, seed=options.seed)
    sys.stdout.write(table(rows) + "\n")
    lost = {row.name: rows[0].top1 - row.top1 for row in rows}
    return int(max(lost["int8"], lost["mixed"]) > THRESHOLD)


if __name__ == "__main__":
    sys.exit(main())
