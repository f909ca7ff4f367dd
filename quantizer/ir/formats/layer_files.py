"""Loads the file formats that specs describe under `formats`, and lists the systems that specs may name.

Entry points name the formats (`core.rooms.layer_formats`); a room adds systems (`Room.names`).
"""

from __future__ import annotations

import functools
import importlib
from collections.abc import Mapping
from typing import Any, Protocol, cast

from quantizer.core.case import AxisOrder
from quantizer.core.errors import PluginError
from quantizer.core.rooms import layer_formats, rooms
from quantizer.core.spec import Spec
from quantizer.ir.graph import Graph

NAMES = ("compass", "onnx", "tflite", "torch", "tosa", "tpulang")
"""The systems whose names of operators a spec may list under `names`, besides those of rooms."""


class LayerFile(Protocol):
    """A module that turns graphs into the layers of a file format, and back."""

    ORDER: AxisOrder
    """The axis order of spatial tensors in the format."""

    def foreign(self, graph: Graph, specs: Mapping[str, Spec]) -> Graph:
        """Return *graph* in the vocabulary of the format; UnsupportedError for nodes that it cannot express."""
        ...

    def native(self, graph: Graph, specs: Mapping[str, Spec]) -> Graph:
        """Return a graph of the format in which the operators of specs replace the layers that they describe."""
        ...

    def to_bytes(self, graph: Graph) -> tuple[Any, ...]:
        """Return the contents of the files of a graph in the vocabulary of the format."""
        ...

    def from_bytes(self, *contents: Any) -> Graph:
        """Return the graph from the bytes of `to_bytes`."""
        ...


def systems() -> tuple[str, ...]:
    """Return the systems whose names of operators a spec may list."""
    return tuple(sorted({*NAMES, *(name for room in rooms() for name in room.names)}))


def layer_files(spec: Spec) -> dict[str, LayerFile]:
    """Return the module of each file format that holds the operator, in the order of the spec."""
    known = layer_formats()
    return {name: _module(known[name]) for name in spec.formats}


@functools.cache
def _module(name: str) -> LayerFile:
    try:
        return cast("LayerFile", importlib.import_module(name))
    except Exception as err:
        raise PluginError(f"file format {name}: cannot be imported: {type(err).__name__}: {err}") from err


def written_and_read(file: LayerFile, written: Graph, specs: Mapping[str, Spec]) -> Graph:
    """Return the graph read back from *written*, in the vocabulary of the format."""
    return file.native(file.from_bytes(*file.to_bytes(written)), specs)
