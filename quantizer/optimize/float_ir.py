"""Reads the float IR of a cfg: the graph in our operators, the settings of its layers, and its data sets."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import torch

from quantizer.core.errors import UnsupportedError
from quantizer.core.library import Library
from quantizer.core.wording import shown_path
from quantizer.ir.formats import compass
from quantizer.ir.graph import Graph, check_size
from quantizer.optimize.generations import in_generations
from quantizer.optimize.layers_without_spec import with_lone_layers
from quantizer.optimize.loader import Loader
from quantizer.optimize.per_layer import LayerKey
from quantizer.optimize.registered import dataset_named
from quantizer.optimize.running import Runner, batch_in_ir
from quantizer.optimize.settings import layer_settings
from quantizer.optimize.work import PLATFORM, Work
from quantizer.plugins.layers_without_spec import LoneLayer
from quantizer.runtime.executor import output_shapes

TABLE_BITS_BEHIND = 2
"""The number of bits that a table index may be narrower than its input without loss of accuracy."""


def with_graph(work: Work, theirs: Graph) -> Work:
    """Return the initial state for a float graph in Compass vocabulary."""
    # numbers, names and types as in the file: cfg fields name layers by these, and conversion changes them
    keys = {
        node.name: LayerKey(
            number, node.name, node.op, str(node.attrs.get("method", "")) if node.op == "Activation" else ""
        )
        for number, node in enumerate(theirs.nodes)
    }
    graph = compass.native(theirs, work.library.specs)
    if theirs.subgraphs:
        raise UnsupportedError(f"{theirs.name}: subgraphs (If, Loop) are not quantized here.")
    graph = in_generations(with_lone_layers(graph, work.library.specs, keys, work.library.platform(PLATFORM)))
    for node in graph.nodes:
        if node.op not in work.library.specs and not isinstance(node.parameters, LoneLayer):
            raise UnsupportedError(
                f"{theirs.name}: layer {node.name!r}: {node.op}{_method(keys[node.name])}: no operator is that layer. "
                "Write a spec with formats.compass, or a plugin of that type, or remove the layer."
            )
    _check_sizes(graph, work.library)
    settings = layer_settings(work.options, keys)
    runner = Runner(work.library.specs, work.library.platform(PLATFORM).quantizer, batch_in_ir(graph))
    return replace(work, graph=graph, keys=keys, settings=settings, runner=runner)


def _check_sizes(graph: Graph, library: Library) -> None:
    """Raise GraphError before a layer runs whose result would exceed the size limit of tensors."""
    for node in graph.nodes:
        if (spec := library.specs.get(node.op)) is None:
            continue
        shapes = {key: graph.tensor(name).shape for key, name in zip(spec.inputs, node.inputs, strict=False) if name}
        # the meta device has shapes and no memory
        operands = {key: torch.empty(shape, device="meta") for key, shape in shapes.items()}
        for shape in output_shapes(spec, node, operands):
            check_size(f"layer {node.name!r}: {node.op}", shape, torch.float32.itemsize)


def _method(key: LayerKey) -> str:
    return f" {key.method}" if key.method else ""


def calibration_data(work: Work) -> Loader | None:
    """Return the batches of the calibration set; None if the cfg names none."""
    options = work.options
    path = options.file("calibration_data")
    if path is None:
        return None
    size, shuffled = options.number("calibration_batch_size"), bool(options["calibration_shuffe"])
    data = dataset_named(options, path, None)
    return Loader(options.text("dataset"), data, work.float_graph, size, shuffled, shown_path(path))


def validation_data(work: Work) -> Loader | None:
    """Return the batches of the validation set; None if the cfg names none, or no metric."""
    options = work.options
    path = options.file("data")
    if path is None or not options["metric"]:
        return None
    data = dataset_named(options, path, options.file("label"))
    return Loader(
        options.text("dataset"), data, work.float_graph, options.number("metric_batch_size"), source=shown_path(path)
    )


def advice(work: Work) -> Iterator[str]:
    """Yield warnings about settings that cost accuracy."""
    coarse = [
        name
        for name, own in work.settings.items()
        if own.number("activation_bits") > own.number("lut_items_in_bits") + TABLE_BITS_BEHIND
    ]
    if coarse:
        named = ", ".join(coarse[:3]) + (f" and {len(coarse) - 3} more" if len(coarse) > 3 else "")
        yield (
            f"activation_bits > lut_items_in_bits + {TABLE_BITS_BEHIND} in {named}: tables are coarse for such"
            " activations. Raise lut_items_in_bits."
        )
    if work.options["calibration_data"] == "":
        yield "calibration_data is empty: ranges are those of zeros."
    for name, loader in (("data_batch_dim", work.calibration or work.validation), ("label_batch_dim", work.validation)):
        axis = work.options.number(name)
        if axis and isinstance(loader, Loader) and not callable(getattr(loader.data, "collate_fn", None)):
            yield f"{name} = {axis} has no effect: {loader.name} has no collate_fn that puts the batch there."
