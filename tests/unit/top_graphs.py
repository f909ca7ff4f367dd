"""Graphs in Top's vocabulary for the tests: every operator of the table, and a network of one convolution."""

from __future__ import annotations

import random
from typing import Any

import torch

from quantizer.core.dtypes import DTYPES
from quantizer.ir.formats.top_ops import STRUCTURE, TOP_OPS, Attribute, Value
from quantizer.ir.graph import Graph, Node, Tensor, container
from quantizer.numerics.qparams import QParams

OPERATORS = sorted(TOP_OPS.keys() - STRUCTURE)
NUMBERS = (
    "float64",
    "float32",
    "float16",
    "bfloat16",
    "bool",
    "int8",
    "uint8",
    "int16",
    "uint16",
    "int32",
    "uint32",
    "int64",
    "uint64",
)
TEXTS = ("a", "", 'quote " and \\', "Größe\n\t", "\x00\x7f", "100 %")


def tensor(name: str, shape: tuple[int, ...], dtype: str = "float32", qparams: QParams | None = None) -> Tensor:
    return Tensor(name, shape, DTYPES[dtype], None, qparams)


def constant(
    rng: random.Random, name: str, shape: tuple[int, ...], dtype: str = "float32", qparams: Any = None
) -> Tensor:
    kind = DTYPES[dtype]
    data = torch.tensor([rng.randrange(2 if kind.kind == "bool" else 100) for _ in range(torch.Size(shape).numel())])
    if kind.kind == "float":
        data = (data - 50) * 0.37
    return Tensor(name, shape, kind, data.reshape(shape).to(container(kind)), qparams)


def steps(dtype: str, scale: Any, zero: Any, axis: int | None = None, codes: tuple[int, int] | None = None) -> QParams:
    kind = DTYPES[dtype]
    low, high = codes or (kind.min, kind.max)
    return QParams(kind, torch.tensor(scale, dtype=torch.float64), torch.tensor(zero), low, high, axis)


def value(rng: random.Random, attribute: Attribute) -> Any:
    """A legal value of an attribute."""
    match attribute.kind:
        case "string":
            return rng.choice(attribute.choices or TEXTS)
        case "bool":
            return rng.random() < 0.5
        case "i64":
            return rng.choice((0, -1, 7, (1 << 63) - 1, -(1 << 63)))
        case "i32" | "si32":
            return rng.choice((0, -1, 7, (1 << 31) - 1, -(1 << 31)))
        case "ui32":
            return rng.choice((0, 7, (1 << 32) - 1))
        case "f64":
            return rng.choice((0.0, -0.0, 0.1, -1.0, 1e-300, 5e-324, 1e22, float("inf"), float("-inf"), 1 / 3))
        case "i64s" | "f64s":
            return tuple(value(rng, Attribute(attribute.kind[:-1])) for _ in range(rng.randrange(4)))
        case _:
            return (("n", 3), ("flag", True), ("alpha", 0.5), ("sizes", (1, -2)), ("weights", (0.25, 1.0)), ("no", ()))


def count(rng: random.Random, values: tuple[Value, ...]) -> list[bool]:
    """For each of a legal number of operands or results, whether it is there."""
    if any(item.presence == "variadic" for item in values):
        return [True] * rng.randrange(1, 4)
    kept = [item for item in values if item.presence != "optional" or rng.random() < 0.5]
    return [item.presence != "none" or rng.random() < 0.5 for item in kept]


def random_qparams(rng: random.Random, dtype: str, shape: tuple[int, ...]) -> QParams | None:
    if dtype not in ("int8", "uint8", "int16", "uint16") or rng.random() < 0.4:
        return None
    kind = DTYPES[dtype]
    codes = (kind.min, kind.max) if rng.random() < 0.7 else (kind.min + 1, kind.max - 2)
    if rng.random() < 0.5 or not shape:
        return steps(dtype, rng.choice((0.1, 1.0, 1e-7, 3e20)), rng.randint(*codes), None, codes)
    axis = rng.randrange(len(shape))
    scales = [rng.random() + 1e-9 for _ in range(shape[axis])]
    return steps(dtype, scales, [rng.randint(*codes) for _ in scales], axis, codes)


def graph_of(op: str, seed: int) -> Graph:
    """A graph of one node of *op*: legal operands, results and attributes, shapes and numbers of any kind."""
    rng = random.Random(f"{op} {seed}")
    table = TOP_OPS[op]
    tensors: dict[str, Tensor] = {}
    inputs: list[str] = []
    reads: list[str | None] = []
    for i, there in enumerate(count(rng, table.operands)):
        shape, dtype = tuple(rng.randrange(1, 4) for _ in range(rng.randrange(5))), rng.choice(NUMBERS)
        name = f"{'in' if i % 2 else 'wéight'} {i}"
        reads.append(name if there else None)
        if there and rng.random() < 0.5:
            tensors[name] = constant(rng, name, shape, dtype, random_qparams(rng, dtype, shape))
        elif there:
            tensors[name] = tensor(name, shape, dtype, random_qparams(rng, dtype, shape))
            inputs.append(name)
    made = count(rng, table.results)
    made = made if any(made) else [True] * len(made)
    first = f"out {made.index(True)}"
    outputs = [f"out {i}" if there else f"{first}#{i}" for i, there in enumerate(made)]
    for name, there in zip(outputs, made, strict=True):
        tensors[name] = tensor(name, (2, 1) if there else (), "int8" if there else "float32")
    attrs = {
        key: value(rng, attribute)
        for key, attribute in table.attributes.items()
        if attribute.required or rng.random() < 0.5
    }
    results = tuple(name for name, there in zip(outputs, made, strict=True) if there)
    return Graph("one", (Node(first, op, tuple(reads), tuple(outputs), attrs),), tensors, tuple(inputs), results)


def convolution(quantized: bool = False, bias: bool = True) -> Graph:
    """[1, 3, 28, 28] through a 3x3 convolution to 8 channels and a Relu; weights per channel where quantized."""
    rng = random.Random(5)
    q = (lambda scale, zero: steps("int8", scale, zero)) if quantized else (lambda scale, zero: None)
    codes, sums = ("int8", "int32") if quantized else ("float32", "float32")
    per_channel = steps("int8", [0.01 * (i + 1) for i in range(8)], [0] * 8, 0) if quantized else None
    tensors = [
        tensor("x", (1, 3, 28, 28), codes, q(0.1, -3)),
        constant(rng, "w", (8, 3, 3, 3), codes, per_channel),
        constant(rng, "b", (8,), sums),
        tensor("conv0", (1, 8, 26, 26), codes, q(0.25, 4)),
        tensor("y", (1, 8, 26, 26), codes, q(0.25, 4)),
    ]
    if not bias:
        tensors.pop(2)
    window = {"kernel_shape": (3, 3), "strides": (1, 1), "dilations": (1, 1), "pads": (0, 0, 0, 0)}
    nodes = (
        Node(
            "conv0", "top.Conv", ("x", "w", "b" if bias else None), ("conv0",), {**window, "do_relu": False, "group": 1}
        ),
        Node("y", "top.Relu", ("conv0",), ("y",)),
    )
    return Graph("Conv", nodes, {item.name: item for item in tensors}, ("x",), ("y",))
