"""Architectures that people run, as ONNX files: built by torch with weights of a seed, or trained here; torchvision's by name."""

from __future__ import annotations

import io
import math
import warnings
from collections.abc import Callable
from functools import cache
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn

from quantizer.numerics.deviates import deviates

OPSET = 18
TORCHVISION = (
    "mobilenet_v2",
    "resnet18",
    "efficientnet_b0",
    "squeezenet1_1",
    "shufflenet_v2_x0_5",
    "mnasnet0_5",
    "mobilenet_v3_small",
    "regnet_y_400mf",
    "vit_b_16",
)


class Decoder(nn.Module):
    """One layer of a transformer that reads the keys and values of earlier tokens and returns them with its own."""

    def __init__(self, width: int = 32, heads: int = 4) -> None:
        super().__init__()
        self.heads, self.size = heads, width // heads
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.before, self.between = nn.LayerNorm(width), nn.LayerNorm(width)
        self.feed = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

    def forward(self, x: Tensor, keys: Tensor, values: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        batch, tokens, width = x.shape
        made = self.qkv(self.before(x)).reshape(batch, tokens, 3, self.heads, self.size).permute(2, 0, 3, 1, 4)
        q, k, v = made.unbind(0)
        keys, values = torch.cat([keys, k], 2), torch.cat([values, v], 2)
        read = torch.softmax(q @ keys.transpose(-1, -2) / math.sqrt(self.size), -1) @ values
        x = x + self.out(read.transpose(1, 2).reshape(batch, tokens, width))
        return x + self.feed(self.between(x)), keys, values


class Recurrent(nn.Module):
    """Two layers of an LSTM and a projection."""

    def __init__(self) -> None:
        super().__init__()
        self.lstm, self.out = nn.LSTM(8, 16, 2, batch_first=True), nn.Linear(16, 4)

    def forward(self, x: Tensor) -> Tensor:
        found: Tensor = self.out(self.lstm(x)[0])
        return found


def seeded(model: nn.Module) -> nn.Module:
    """Give every parameter values of a seed, as large as its rows ask for."""
    with torch.no_grad():
        for place, parameter in enumerate(model.parameters()):
            fan = parameter[0].numel() if parameter.dim() > 1 else 0
            drawn = torch.from_numpy(deviates(tuple(parameter.shape), (5, 0, place))).float()
            parameter.copy_(drawn * math.sqrt(2 / fan) if fan else parameter + drawn / 10)
    return model.eval()


def digits() -> nn.Module:
    """A small network of convolutions trained on scikit-learn's digits for a few steps."""
    from sklearn.datasets import load_digits

    found = load_digits()
    images = torch.from_numpy(found.images.astype(np.float32) / 16).unsqueeze(1)
    labels = torch.from_numpy(found.target)
    model = seeded(
        nn.Sequential(
            nn.Conv2d(1, 8, 3, padding=1),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Conv2d(8, 16, 3, padding=1),
            nn.ReLU(),
            nn.AdaptiveAvgPool2d(2),
            nn.Flatten(),
            nn.Linear(64, 10),
        )
    ).train()
    optimizer = torch.optim.Adam(model.parameters(), 0.01)
    for start in range(0, 1500, 100):
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(images[start : start + 100]), labels[start : start + 100]).backward()
        optimizer.step()
    return model.eval()


def exported(model: nn.Module, operands: tuple[Tensor, ...]) -> bytes:
    """Return the model as an ONNX file."""
    with warnings.catch_warnings(), io.BytesIO() as file:
        warnings.simplefilter("ignore")
        torch.onnx.export(model, operands, file, dynamo=False, opset_version=OPSET)
        return file.getvalue()


@cache
def torchvision_models() -> object:
    """Return torchvision's models; where its compiled part is for another build of torch, its operators are declared only."""
    import re

    spec = find_spec("torchvision")
    assert spec is not None
    assert spec.origin is not None
    if not hasattr(torch.ops.torchvision, "nms"):
        source = (Path(spec.origin).parent / "_meta_registrations.py").read_text(encoding="utf-8")
        library = torch.library.Library("torchvision", "FRAGMENT")
        for name in sorted(set(re.findall(r'register_(?:meta|fake)\("(?:torchvision::)?(\w+)"', source))):
            library.define(f"{name}() -> ()")
        KEPT.append(library)
    import torchvision.models

    return torchvision.models


KEPT: list[object] = []
"""Declarations of operators live as long as this."""


def of_torchvision(name: str, *, small: bool = False) -> bytes:
    """Return one of TORCHVISION's models; *small*: a transformer of images reads smaller ones, as the others do."""
    side = 224 if name.startswith("vit") and not small else 64
    sized = {"image_size": side} if name.startswith("vit") else {}
    model = seeded(getattr(torchvision_models(), name)(weights=None, **sized))
    return exported(model, (torch.zeros(1, 3, side, side),))


SMALL: dict[str, Callable[[], bytes]] = {
    "decoder": lambda: exported(
        seeded(Decoder()), (torch.zeros(1, 2, 32), torch.zeros(1, 4, 5, 8), torch.zeros(1, 4, 5, 8))
    ),
    "lstm": lambda: exported(seeded(Recurrent()), (torch.zeros(1, 6, 8),)),
    "digits": lambda: exported(digits(), (torch.zeros(1, 1, 8, 8),)),
}
