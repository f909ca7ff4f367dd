"""Small graphs that engines may fuse or rewrite: the schema of graph_specs/<graph>.yaml."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from pathlib import Path

from quantizer.core.errors import SpecError
from quantizer.core.library import read_file
from quantizer.core.model import Model
from quantizer.core.model_errors import Finding
from quantizer.core.spec import Domain
from quantizer.core.spec_values import Expr, Finite, Identifier
from quantizer.core.wording import shown_path, suggestion

FOLDER = "graph_specs"


class GraphNode(Model):
    """One operator; its result is a tensor with the node's name."""

    op: str
    """The ONNX operator."""
    reads: list[Identifier]
    """Inputs, constants and nodes, in the operator's order."""
    attrs: dict[str, int | float | Expr | list[Expr]] = {}
    """Attributes: numbers, integer expressions over the dimensions, or lists of these."""


class GraphSpec(Model):
    """A graph of a few nodes, its sizes, and which of its tensors hold codes."""

    graph: Identifier
    """Name of the graph and of its file."""
    summary: str
    """One line."""
    dims: dict[Identifier, Domain]
    """Sizes and the domains that they are drawn from."""
    inputs: dict[Identifier, list[Expr]]
    """Input -> shape."""
    weights: dict[Identifier, list[Expr]] = {}
    """Constant of real numbers -> shape."""
    numbers: dict[Identifier, list[Expr]] = {}
    """Constant of integers -> its values: a shape, paddings."""
    reals: dict[Identifier, Finite] = {}
    """Constant of one real number -> its value."""
    nodes: dict[Identifier, GraphNode]
    """Node -> operator, in an order in which they can run."""
    outputs: list[Identifier]
    """Nodes whose results leave the graph."""
    quantized: list[list[Identifier]]
    """Variants of the graph. Each entry lists the nodes whose results are codes. Other results stay real numbers."""
    orders: list[list[Identifier]] = []
    """Neighbouring nodes that may be swapped without changing a code: the second one moves the first one's result."""


def load_graph_spec(path: Path) -> GraphSpec:
    """Read one graph; SpecError lists everything that is wrong with the file."""
    return read_file(path, GraphSpec, lambda spec: list(_findings(spec, path.stem)))[0]


def shipped_graphs() -> dict[str, GraphSpec]:
    """Return the shipped graphs by name."""
    return dict(_shipped())


@functools.lru_cache(maxsize=1)
def _shipped() -> dict[str, GraphSpec]:
    return {path.stem: load_graph_spec(path) for path in sorted(shipped_graphs_folder().glob("*.yaml"))}


def shipped_graphs_folder() -> Path:
    """Return the folder of the shipped graphs."""
    package = Path(__file__).resolve().parents[1]
    # inside an installed package, or next to it in a checkout
    for folder in (package / FOLDER, package.parent / FOLDER):
        if folder.is_dir():
            return folder
    raise SpecError(f"{shown_path(package / FOLDER)}: the shipped graphs are missing. Install the package again.")


def _findings(spec: GraphSpec, stem: str) -> Iterator[Finding]:
    if spec.graph != stem:
        yield Finding(("graph",), f"must be {stem!r}, the name of its file, got {spec.graph!r}.")
    yield from _unread(spec)
    lists = {"outputs": [spec.outputs], "quantized": spec.quantized, "orders": spec.orders}
    for key, name in ((key, name) for key, found in lists.items() for names in found for name in names):
        if name not in spec.nodes:
            yield Finding((key,), f"{name!r}: no node.{suggestion(name, list(spec.nodes), 'Known')}")
    for form in spec.quantized:
        if missing := [name for name in spec.outputs if name not in form]:
            yield Finding(("quantized",), f"{missing[0]!r} leaves the graph. Its result must hold codes in every form.")
    for pair in spec.orders:
        if len(pair) != 2 or pair[1] not in spec.nodes or spec.nodes[pair[1]].reads[:1] != pair[:1]:
            yield Finding(("orders",), f"{pair}: must be two nodes, the second one reading the first.")


def _unread(spec: GraphSpec) -> Iterator[Finding]:
    """Yield duplicate names, and tensors that no earlier node produces."""
    known = {*spec.inputs, *spec.weights, *spec.numbers, *spec.reals}
    for name, node in spec.nodes.items():
        if name in known:
            yield Finding(("nodes", name), "is the name of another tensor. Rename one of the two.")
        for index, read in enumerate(node.reads):
            if read not in known:
                text = f"{read!r}: no tensor before it.{suggestion(read, sorted(known), 'Known')}"
                yield Finding(("nodes", name, "reads", index), text)
        known.add(name)
