"""Compass IR: a text of layers and a .bin of constants; read, written, and converted to our operators and back."""

from __future__ import annotations

import io
import os
from pathlib import Path

from quantizer.core.case import AxisOrder
from quantizer.core.errors import FormatError, GraphError
from quantizer.core.files import replace_files
from quantizer.core.reading import Readable
from quantizer.ir.formats.compass_foreign import foreign
from quantizer.ir.formats.compass_graph import Blob, parse_graph
from quantizer.ir.formats.compass_native import native
from quantizer.ir.formats.compass_text import PathLike, check_file, read_sections, sections_of
from quantizer.ir.formats.compass_write import format_graph
from quantizer.ir.graph import Graph
from quantizer.ir.verify import verify

ORDER: AxisOrder = "channels_last"
CONSTANTS = Readable("a file of constants", 1 << 40, FormatError)
"""Such a file is read in pieces, each of a constant's size."""

__all__ = ["ORDER", "foreign", "from_bytes", "native", "read", "to_bytes", "write"]


def read(text_path: PathLike, bin_path: PathLike) -> Graph:
    """Return the verified graph of the two files, in Compass vocabulary.

    A node's `op` is the layer type, its `attrs` the typed parameters, its last inputs the constants, its order
    channels_last. Scales become `QParams`: scale = 1 / steps, zero_point = -zp. FormatError names file, line and key.
    """
    sections = read_sections(text_path)
    name = os.fspath(bin_path)
    check_file(name)
    try:
        with CONSTANTS.opened(Path(name), name) as file:
            graph = parse_graph(sections, Blob(name, file))
    except OSError as err:
        raise FormatError(f"{name}: cannot be read: {err.strerror}.") from None
    try:
        verify(graph)
    except GraphError as err:
        raise FormatError(f"{os.fspath(text_path)}: {err}") from None
    return graph


def to_bytes(graph: Graph) -> tuple[str, bytes]:
    """Return the contents of the two files that `write` writes."""
    verify(graph)
    text, layout = format_graph(graph)
    return text, b"".join(layout.chunks())


def from_bytes(text: str, blob: bytes, name: str = "graph") -> Graph:
    """Return the verified graph from the bytes of `to_bytes`; errors as in `read`, under *name*."""
    graph = parse_graph(sections_of(text, name), Blob(f"{name}.bin", io.BytesIO(blob)))
    verify(graph)
    return graph


def write(graph: Graph, text_path: PathLike, bin_path: PathLike) -> None:
    """Write a graph in Compass vocabulary to the two files: both or none, the same bytes for the same graph."""
    if os.path.realpath(text_path) == os.path.realpath(bin_path):
        raise FormatError(f"{os.fspath(text_path)}: text and constants need a file each.")
    verify(graph)
    text, layout = format_graph(graph)
    replace_files({Path(bin_path): layout.chunks(), Path(text_path): text}, FormatError)
