"""Converts a graph to the text of Top MLIR and its weights, with TpuLang's steps and names.

1 `init` makes the graph, 2 operator functions add to it, 3 inputs and outputs are named, 4 TpuLangConverter makes an
MLIRImporter, 5 `generate_mlir` makes the text and collects the weights, 6 `convert` writes both, 7 `deinit` releases
the graph.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

from quantizer.ir.formats import top_mlir
from quantizer.ir.formats.top_mlir import Files
from quantizer.ir.graph import Graph as IrGraph
from quantizer.lang.current import get_default_graph
from quantizer.lang.errors import LangError
from quantizer.lang.graph import Graph
from quantizer.lang.tensor import Tensor

State = Literal["TOP_F32", "TOP_QUANTIZED"]
STATES: dict[str, State] = {"f32": "TOP_F32", "quantized": "TOP_QUANTIZED"}
LATER = (
    "cmp",
    "mode",
    "dynamic",
    "asymmetric",
    "opt",
    "mlir_inference",
    "bmodel_inference",
    "top_mlir_inference",
    "tpu_mlir_inference",
    "log_level",
    "embed_debug_info",
)
"""Arguments that TpuLang passes to later steps of its compiler. They are accepted and have no effect here."""


@dataclass(frozen=True)
class MLIRImporter:
    """A finished module: the graph of Top operators, with its name and state."""

    graph: IrGraph
    name: str
    state: State

    def mlir_module(self) -> str:
        """Return the text of the module."""
        return top_mlir.to_bytes(self.graph, self.name, self.state)[0]

    def weights(self) -> bytes:
        """Return the archive of the weights that the module reads."""
        return top_mlir.to_bytes(self.graph, self.name, self.state)[1]


class TpuLangConverter:
    """Turns a graph with its inputs and outputs into a module."""

    def __init__(
        self, name: str, graph: Graph, inputs: Sequence[Tensor], outputs: Sequence[Tensor], mode: str = "f32"
    ) -> None:
        """Take the name, the graph and the mode of a module; *mode* is f32 or quantized.

        LangError for tensors of another graph.
        """
        if mode not in STATES:
            raise LangError(f"mode={mode!r}: must be one of {', '.join(STATES)}.")
        if not isinstance(name, str) or not name:
            raise LangError(f"name={name!r}: must be a string.")
        self.name, self.state = name, STATES[mode]
        self.graph = graph.to_ir(inputs, outputs)
        """Its quantization parameters are propagated."""

    def init_MLIRImporter(self) -> MLIRImporter:  # noqa: N802 - the field's name
        """Return the importer that produces the text."""
        return MLIRImporter(self.graph, self.name, self.state)

    def generate_mlir(self) -> tuple[str, bytes]:
        """Return the text of the module and the archive of its weights."""
        importer = self.init_MLIRImporter()
        return importer.mlir_module(), importer.weights()

    def convert(self, folder: str | os.PathLike[str] = ".") -> Files:
        """Write both files into *folder*, or neither."""
        return top_mlir.write(self.graph, folder, self.name, self.state)


def compile(  # noqa: A001 - TpuLang's name
    name: str,
    inputs: Sequence[Tensor],
    outputs: Sequence[Tensor],
    *,
    folder: str | os.PathLike[str] = ".",
    graph: Graph | None = None,
    refs: None = None,
    no_save: bool = False,
    **later: Any,
) -> Files:
    """Write `<name>_origin.mlir` and its weights for a graph of codes (state TOP_QUANTIZED), and return their paths.

    graph: None means the default graph. refs must be None and no_save False: nothing is compared here, and both
    files are always written. Arguments in LATER are accepted and have no effect.
    """
    return _compiled("compile", "quantized", name, inputs, outputs, folder, graph, refs, no_save, later)


def compile_f32(
    name: str,
    inputs: Sequence[Tensor],
    outputs: Sequence[Tensor],
    *,
    folder: str | os.PathLike[str] = ".",
    graph: Graph | None = None,
    refs: None = None,
    no_save: bool = False,
    **later: Any,
) -> Files:
    """Do the same as `compile` for a graph of floats (state TOP_F32)."""
    return _compiled("compile_f32", "f32", name, inputs, outputs, folder, graph, refs, no_save, later)


def _compiled(
    function: str,
    mode: str,
    name: str,
    inputs: Sequence[Tensor],
    outputs: Sequence[Tensor],
    folder: str | os.PathLike[str],
    graph: Graph | None,
    refs: None,
    no_save: bool,  # noqa: FBT001
    later: dict[str, Any],
) -> Files:
    if unknown := sorted(later.keys() - set(LATER)):
        raise LangError(f"{function}: no argument {unknown[0]!r}.")
    if refs is not None or no_save:
        raise LangError(f"{function}: refs and no_save: must be left out; run the graph to compare it.")
    # TpuLang has one graph for all calls; here a caller may have several
    owner = get_default_graph() if graph is None else graph
    return TpuLangConverter(name, owner, inputs, outputs, mode).convert(folder)
