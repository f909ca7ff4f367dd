"""The ten steps from a float IR to a quantized one.

Each is a function from the state before the step to the state after it.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import torch
from torch import Tensor

from quantizer.core.errors import FormatError, UnsupportedError
from quantizer.core.files import exists, overwritten, replace_files
from quantizer.core.library import Library
from quantizer.core.wording import shown_path
from quantizer.ir.formats import compass
from quantizer.ir.graph import Graph, check_size
from quantizer.numerics.pinned import pinned
from quantizer.ops import BUILT_IN, REGISTRY
from quantizer.optimize.adaquant import adaquant
from quantizer.optimize.autosearch import FirstBatches, Search, searched
from quantizer.optimize.cfg import Options
from quantizer.optimize.conversions import float_layers, with_floats
from quantizer.optimize.debugging import FLOAT32, faked_layers
from quantizer.optimize.dumping import dump_folders, dump_tensors, statistics_archive
from quantizer.optimize.gathering import gather, ranges_of
from quantizer.optimize.generations import in_generations
from quantizer.optimize.global_calibration import moved
from quantizer.optimize.global_methods import Method, methods_of
from quantizer.optimize.kept_statistics import read_statistics, with_kept
from quantizer.optimize.layers_without_spec import with_lone_layers
from quantizer.optimize.loader import Loader
from quantizer.optimize.measuring import Score, compare_layers, measure
from quantizer.optimize.mvn_correction import Corrected, mvn_corrected
from quantizer.optimize.passes import AFTER, AT, BEFORE, degraded, symmetric_where_wide
from quantizer.optimize.per_layer import LayerKey
from quantizer.optimize.quantizing import decide, quantized_graph
from quantizer.optimize.registered import dataset_named, metrics_named
from quantizer.optimize.running import Runner, batch_in_ir
from quantizer.optimize.scaled_products import unmarked
from quantizer.optimize.settings import Settings, layer_settings
from quantizer.optimize.template import opt_template
from quantizer.optimize.tiling import tiled
from quantizer.optimize.weight_codes import Trained, rounded
from quantizer.optimize.work import PLATFORM, Say, Work, calibration_batches, ir_batches, zeros
from quantizer.plugins.layers_without_spec import LoneLayer
from quantizer.runtime.executor import output_shapes

TABLE_BITS_BEHIND = 2
"""Bits by which a table's index may be narrower than its input before accuracy suffers."""


def read_graph(work: Work) -> Work:
    """Step 1: read the float IR, the settings of every layer, and the data sets."""
    options = work.options
    text, blob = options.file("graph"), options.file("bin")
    assert text is not None
    assert blob is not None
    if not options["skip_optimization"]:
        _check_output(options)
    work = with_graph(work, compass.read(text, blob))
    work = replace(work, calibration=_calibration(work), validation=_validation(work))
    metrics_named(options)
    for warning in (*options.warnings, *_advice(work)):
        work.say(f"warning: {warning}")
    return work


def with_graph(work: Work, theirs: Graph) -> Work:
    """Return the initial state for a float graph in Compass vocabulary."""
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
    """Raise GraphError for a layer whose parameters make more than any tensor may hold, before it runs."""
    for node in graph.nodes:
        if (spec := library.specs.get(node.op)) is None:
            continue
        shapes = {key: graph.tensor(name).shape for key, name in zip(spec.inputs, node.inputs, strict=False) if name}
        operands = {key: torch.empty(shape, device="meta") for key, shape in shapes.items()}
        for shape in output_shapes(spec, node, operands):
            check_size(f"layer {node.name!r}: {node.op}", shape, torch.float32.itemsize)


@pinned()
def forward_zeros(work: Work) -> Work:
    """Step 2: run the float graph on zeros; every layer must survive them."""
    _on_zeros(work, work.float_graph)
    return work


@pinned()
def optimize_before_quantization(work: Work) -> Work:
    """Step 3: passes that may change layers and settings of the float graph."""
    for change in BEFORE:
        graph, settings = change(work.float_graph, work.settings, work.keys, work.options)
        work = replace(work, graph=graph, settings=settings)
    return work


@pinned()
def gather_statistics(work: Work) -> Work:
    """Step 4: forward the calibration set, batch by batch, and keep statistics of every tensor."""
    everything = bool(work.options["save_statistic_info"])
    found = gather(work.float_graph, work.runs, work.settings, calibration_batches(work), everything=everything)
    for layer in found.missing_ranges:
        work.say(f"warning: layer {layer!r}: its strategy is in_ir, but the IR gives no layer_top_range.")
    path = work.options.file("statistic_file")
    if path is not None:
        lenient = bool(work.options["ignore_missing_statistic"])
        found = with_kept(found, read_statistics(path), path, lenient=lenient)
    return replace(work, gathered=found)


@pinned()
def optimize_at_quantization(work: Work) -> Work:
    """Step 5: ranges from statistics, and passes that may change them; constants move between layers before it."""
    methods = methods_of(work.options["global_calibration"])
    graph = moved(work.float_graph, methods, work.keys, work.runs, lambda: calibration_batches(work))
    if graph is not work.float_graph:
        work = gather_statistics(replace(work, graph=graph))
    work = _ranged(work)
    for method in (each for each in methods if each.name == "mvn_correction"):
        work = _corrected(work, method)
    return work


def _corrected(work: Work, method: Method) -> Work:
    """Return the work with the settings and ranges of mvn_correction, which reads the layers' parameters."""
    if cast("tuple[int, float, bool]", work.options["mixed_precision_auto_search"])[0]:
        raise work.options.error(
            "global_calibration", "mvn_correction chooses bits, and so does mixed_precision_auto_search."
        )
    would = decide(degraded(work.float_graph, work.settings), replace(work.layers, samples=_samples(work)))
    found = mvn_corrected(work.float_graph, method, work.keys, would.tensors, Corrected(work.settings, work.ranges))
    return replace(work, settings=found.settings, ranges=found.ranges)


def _ranged(work: Work) -> Work:
    work = replace(work, ranges=ranges_of(work.float_graph, work.settings, work.gathered))
    for change in AT:
        work = replace(work, ranges=change(work.float_graph, work.settings, work.ranges))
    return work


@pinned()
def quantize_layers(work: Work) -> Work:
    """Step 6: choose every layer's parameters, turn constants into codes, put conversions around float layers.

    Where the cfg asks for it, layers that need more bits are searched for first.
    """
    asked = cast("tuple[int, float, bool]", work.options["mixed_precision_auto_search"])
    return _quantized(_searched(work, Search(*asked)) if asked[0] else work)


def _searched(work: Work, search: Search) -> Work:
    """Return the work with the settings that a search for mixed precision ends with."""
    if work.validation is None:
        text = "compares scores: name dataset, data and metric, or remove the line."
        raise work.options.error("mixed_precision_auto_search", text)
    batches = FirstBatches(work.validation, search.batches)

    def score(name: str, graph: Graph) -> float:
        first = next(iter(measure(name, work.runs, graph, batches, metrics_named(work.options)[:1])))
        try:
            return float(first.value)
        except (TypeError, ValueError):
            text = f"metric {first.metric} gives {str(first.value)[:60]!r}: the first metric must give one number."
            raise work.options.error("mixed_precision_auto_search", text) from None

    wanted = score("float", work.float_graph)
    found = searched(
        search,
        work.settings,
        work.keys,
        lambda settings: wanted - score("quantized", _quantized(_with_settings(work, settings)).quantized_graph),
    )
    names = {key.number: name for name, key in work.keys.items()}
    ends = ((found.wide_from, "16 bits"), (found.float_from, "float32"))
    what = [f"{names[first]!r} on {kind}" for first, kind in ends if first in names]
    text = f"from layer {', from '.join(what)}" if what else "no layer needs more bits"
    work.say(f"mixed_precision_auto_search: {text}: the first metric drops by {found.drop:.6g}")
    if not found.satisfied:
        work.say(f"warning: mixed_precision_auto_search: no choice of layers meets the threshold {search.threshold:g}")
    return _with_settings(work, found.settings)


def _with_settings(work: Work, settings: Mapping[str, Settings]) -> Work:
    """Return the work with other settings and the ranges that follow from them."""
    _, settings = symmetric_where_wide(work.float_graph, settings, work.keys, work.options)
    return _ranged(replace(work, settings=settings))


def _quantized(work: Work) -> Work:
    floats = float_layers(work.float_graph, work.settings)
    layers = replace(work.layers, samples=_samples(work))
    source = degraded(work.float_graph, work.settings)
    decided = decide(source, layers)
    methods = methods_of(work.options["global_calibration"])
    trained = Trained(
        work.float_graph,
        work.keys,
        work.runs,
        lambda: calibration_batches(work),
        decided,
        lambda: quantized_graph(unmarked(source), layers, decided, {}),
    )
    chosen = rounded(trained, methods)
    if chosen:
        decided = decide(source, replace(layers, rounded=chosen))
    for method in (each for each in methods if each.name == "adaquant_zy"):
        learned = adaquant(trained, method, work.library.specs)
        ranges = dict(work.ranges)
        for name, (low, high) in learned.ranges.items():
            ranges[name] = replace(ranges[name], low=low, high=high)
        work = replace(work, ranges=ranges)
        layers = replace(layers, ranges=ranges, learned=learned.layers)
        decided = decide(source, layers)
    graph = with_floats(source, layers, decided, floats)
    debugged = floats | dict.fromkeys(faked_layers(work.options, work.keys), FLOAT32)
    scored = None if debugged == floats else with_floats(source, layers, decided, debugged)
    return replace(work, decided=decided, floats=floats, quantized=graph, scored=scored)


@pinned()
def optimize_after_quantization(work: Work) -> Work:
    """Step 7: compare layers, then passes that may change layers of the quantized graph, but no parameter."""
    loader = work.validation or work.calibration
    if loader is not None:
        count = work.options.number("similarity_data_num")
        batches = ir_batches(work, loader)
        found = compare_layers(work.runs, work.float_graph, work.quantized_graph, batches, count)
        work = replace(work, similarity=found)
    for change in AFTER:
        graph = change(work.quantized_graph, work.library.specs, work.options, work.keys)
        work = replace(work, quantized=in_generations(graph))
    graph = in_generations(tiled(work.quantized_graph, work.library.specs, work.options, work.keys))
    return replace(work, layered=work.quantized_graph, quantized=graph)


@pinned()
def forward_zeros_quantized(work: Work) -> Work:
    """Step 8: run the quantized graph on zeros."""
    _on_zeros(work, work.quantized_graph)
    return work


def write_ir(work: Work) -> Work:
    """Step 9: write text, constants and opt_template.json: all of them or none."""
    text, blob = compass.to_bytes(compass.foreign(work.quantized_graph, work.library.specs))
    made: dict[str, Callable[[], Any]] = {
        "constants": lambda: [blob],
        "text": lambda: text,
        "template": lambda: template_of(work),
        "statistics": lambda: [statistics_archive(work.gathered)],
    }
    contents = {path: made[what]() for what, path in output_files(work.options).items()}
    replace_files(contents, FormatError)
    work.say(f"wrote {shown_path(output_folder(work.options) / output_name(work.options))}.txt and .bin")
    return work


@pinned()
def dump_and_measure(work: Work) -> Work:
    """Step 10: write tensors where the cfg asks for them, and score both graphs on the validation set."""
    if work.options["dump"]:
        loader = work.validation or work.calibration
        feeds = next(iter(ir_batches(work, loader))) if loader else zeros(work, work.float_graph)
        dump_tensors(work.options, work.runs, work.float_graph, work.quantized_graph, feeds)
    if work.validation is None or not work.options["metric"]:
        return work
    scores: list[Score] = []
    if work.options["eval_optimized_model"]:
        graph = work.scored or work.quantized_graph
        scores += measure("quantized", work.runs, graph, work.validation, metrics_named(work.options))
    if work.options["eval_original_model"]:
        scores += measure("float", work.runs, work.float_graph, work.validation, metrics_named(work.options))
    for score in scores:
        work.say(f"{score.graph} metric: {score.report}")
    return replace(work, scores=tuple(scores))


STEPS: tuple[Callable[[Work], Work], ...] = (
    read_graph,
    forward_zeros,
    optimize_before_quantization,
    gather_statistics,
    optimize_at_quantization,
    quantize_layers,
    optimize_after_quantization,
    forward_zeros_quantized,
    write_ir,
    dump_and_measure,
)


AFTER_RANGES = STEPS[5:-2]
"""Computes a quantized graph from ranges, and writes nothing."""


def optimize(options: Options, library: Library, say: Say = lambda text: None) -> Work:  # noqa: ARG005 - quiet
    """Run the steps of a cfg; with skip_optimization only reading and measuring of the given graph."""
    work = Work(options, library, say)
    if options["skip_optimization"]:
        return _measured_alone(read_graph(work))
    for step in STEPS:
        work = step(work)
    return work


def quantized(options: Options, library: Library) -> Work:
    """Run all steps but the last two: nothing is written."""
    work = Work(options, library)
    for step in STEPS[:-2]:
        work = step(work)
    return work


def template_of(work: Work) -> str:
    """Return the text of opt_template.json."""
    assert work.layered is not None
    return opt_template(work.layered, work.keys, work.settings, work.ranges, work.similarity)


def output_files(options: Options) -> dict[str, Path]:
    """Return the files that step 9 writes: constants, text, opt_template.json, and statistics if the cfg asks for them.

    A template that the user edited as this run's opt_config is not overwritten.
    """
    folder, model, name = output_folder(options), options.text("model_name"), output_name(options)
    found = {"constants": folder / f"{name}.bin", "text": folder / f"{name}.txt"}
    template, edited = folder / f"{model}_opt_template.json", options.file("opt_config")
    if edited is None or overwritten([edited], [template]) is None:
        found["template"] = template
    if options["save_statistic_info"]:
        found["statistics"] = folder / f"{model}_statistic_info.npz"
    return found


def output_folder(options: Options) -> Path:
    """Return the folder that the run writes into."""
    return options.base / options.text("output_dir")


def output_name(options: Options) -> str:
    """Return the name of the quantized IR's files, without suffix."""
    return options.text("quant_ir_name") or options.text("out_ir_name") or f"{options.text('model_name')}_o"


def _measured_alone(work: Work) -> Work:
    if work.validation is None:
        return work
    scores = measure("float", work.runs, work.float_graph, work.validation, metrics_named(work.options))
    for score in scores:
        work.say(f"{score.graph} metric: {score.report}")
    return replace(work, scores=tuple(scores))


def _samples(work: Work) -> dict[str, Tensor]:
    """Return the inputs of plugin layers in the first calibration batch.

    These layers calibrate their own tensors on them.
    """
    graph = work.float_graph
    rules = {node.name: REGISTRY.find(node.op, "quantize", PLATFORM) for node in graph.nodes}
    read = {
        name
        for node in graph.nodes
        if isinstance(node.parameters, LoneLayer) or ((rule := rules[node.name]) and rule.origin != BUILT_IN)
        for name in node.inputs
    }
    if not read:
        return {}
    feeds = next(iter(calibration_batches(work)))
    return {name: values for name, _, values in work.runs.forward(graph, feeds) if name in read}


def _method(key: LayerKey) -> str:
    return f" {key.method}" if key.method else ""


def _calibration(work: Work) -> Loader | None:
    options = work.options
    path = options.file("calibration_data")
    if path is None:
        return None
    size, shuffled = options.number("calibration_batch_size"), bool(options["calibration_shuffe"])
    data = dataset_named(options, path, None)
    return Loader(options.text("dataset"), data, work.float_graph, size, shuffled, shown_path(path))


def _validation(work: Work) -> Loader | None:
    options = work.options
    path = options.file("data")
    if path is None or not options["metric"]:
        return None
    data = dataset_named(options, path, options.file("label"))
    return Loader(
        options.text("dataset"), data, work.float_graph, options.number("metric_batch_size"), source=shown_path(path)
    )


def _on_zeros(work: Work, graph: Graph) -> None:
    for name, node, values in work.runs.forward(graph, zeros(work, graph)):
        wanted = graph.tensor(name).shape
        if node is not None and tuple(values.shape) != wanted:
            text = (
                f"layer {node.name!r}: {name!r} comes out with shape {list(values.shape)}, the IR says {list(wanted)}"
            )
            raise FormatError(f"{text}. Correct layer_top_shape.")


def _check_output(options: Options) -> None:
    """Raise FormatError if the output folder cannot be written, or a file is read there, before any work is done."""
    folder = output_folder(options).absolute()
    existing = next(path for path in (folder, *folder.parents) if exists(path))
    if not existing.is_dir() or not os.access(existing, os.W_OK):
        what = "is no folder" if not existing.is_dir() else "cannot be written"
        raise options.error("output_dir", f"{shown_path(existing)}: {what}. Nothing was written.")
    if (path := overwritten([options.path, *options.files.values()], output_files(options).values())) is not None:
        text = f"{shown_path(path)} would be written, and this run reads it. Name another output_dir or out_ir_name."
        raise options.error("output_dir", f"{text} Nothing was written.")
    dumped = {os.path.realpath(folder) for folder in dump_folders(options)} if options["dump"] else set()
    for path in options.files.values():
        if os.path.realpath(path.parent) in dumped:
            text = f"{shown_path(path)} is read, and lies where tensors are written. Name another dump_dir."
            raise options.error("dump_dir", f"{text} Nothing was written.")


def _advice(work: Work) -> Iterator[str]:
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
