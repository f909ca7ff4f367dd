"""Prints a digest of what each operation gives under `pinned`, one a line: run under other settings it must say the same."""

from __future__ import annotations

import hashlib
from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor

from quantizer.numerics.deviates import cosine_of_turns, deviates, logarithm
from quantizer.numerics.pinned import pinned

X = torch.from_numpy(deviates((100_000,), (3,))) * 4
P = X.abs() + 0.01
IMAGES = X[: 2 * 6 * 20 * 20].reshape(2, 6, 20, 20)
WEIGHTS = X[5000 : 5000 + 6 * 4 * 9].reshape(6, 4, 3, 3)
ROWS, LEFT, RIGHT = X.reshape(-1, 50), X[:6000].reshape(2, 30, 100), X[6000:12000].reshape(2, 100, 30)
OF_ANY = ("sigmoid", "exp", "expm1", "erf", "tanh", "sin", "cos", "tan", "atan", "sinh", "cosh", "exp2", "asinh")
OF_POSITIVE = ("log", "log1p", "log2", "log10", "sqrt", "rsqrt", "reciprocal")
FUNCTIONS: dict[str, Callable[[], Tensor]] = {
    **{name: lambda name=name: getattr(torch, name)(X) for name in OF_ANY},  # type: ignore[misc]
    **{name: lambda name=name: getattr(torch, name)(P) for name in OF_POSITIVE},  # type: ignore[misc]
    **{f.__name__: lambda f=f: f(X) for f in (F.silu, F.softplus, F.elu, F.celu, F.selu, F.mish, F.gelu, F.logsigmoid)},  # type: ignore[misc]
    "gelu by tanh": lambda: F.gelu(X, approximate="tanh"),
    **{name: lambda name=name: getattr(torch, name)(X.clamp(-1, 1)) for name in ("asin", "acos")},  # type: ignore[misc]
    **{name: lambda name=name: getattr(torch, name)(X) for name in ("erfc", "lgamma")},  # type: ignore[misc]
    "powers": lambda: torch.stack([P**1.7, P**0.5, X**3, P**-2]),
    "softmax": lambda: torch.softmax(ROWS, 1) + torch.softmax(ROWS, 0),
    "log_softmax": lambda: torch.log_softmax(ROWS, 1) + torch.log_softmax(ROWS, 0),
    "linear": lambda: F.linear(X[:10000].reshape(20, 500), X[10000:20000].reshape(20, 500), X[:20]),
    "one row": lambda: F.linear(X[:500].reshape(1, 500), X[10000:20000].reshape(20, 500)),
    "matmul": lambda: torch.matmul(LEFT, RIGHT),
    "matrix and vector": lambda: LEFT[0] @ X[:100],
    "conv2d": lambda: F.conv2d(IMAGES, WEIGHTS[:, :3].repeat(1, 2, 1, 1)),
    "depthwise": lambda: F.conv2d(IMAGES, WEIGHTS[:, :1], groups=6),
    "conv_transpose2d": lambda: F.conv_transpose2d(IMAGES, WEIGHTS, X[:4], 2, 1, 1),
    "layer_norm": lambda: F.layer_norm(ROWS, (50,)),
    "group_norm": lambda: F.group_norm(IMAGES, 2),
    "batch_norm": lambda: F.batch_norm(IMAGES, X[:6], P[:6]),
    "bilinear": lambda: F.interpolate(IMAGES, (33, 31), mode="bilinear"),
    "sums": lambda: torch.stack([ROWS.sum(1), ROWS.mean(1), ROWS.var(1, unbiased=False)]),
    "moments": lambda: torch.stack([*torch.std_mean(X), X.norm(), X.mean()]),
    "histogram": lambda: torch.histc(X, 2048, -3, 3),
    "deviates": lambda: X,
    "logarithm of deviates": lambda: torch.from_numpy(logarithm(P.double().numpy())),
    "cosine of deviates": lambda: torch.from_numpy(cosine_of_turns(P.double().numpy() % 1)),
    "float64": lambda: torch.exp(X.double()) + torch.tanh(X.double()) + torch.log(P.double()),
}


def main() -> None:
    """Print them."""
    for name, function in FUNCTIONS.items():
        with pinned():
            made = function()
        print(name, hashlib.sha256(made.contiguous().numpy().tobytes()).hexdigest()[:16])  # noqa: T201


if __name__ == "__main__":
    main()
