"""The ten steps from a float IR to a quantized one.

Each is a function from the state before the step to the state after it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, cast

from torch import Tensor

from quantizer.core.errors import FormatError
from quantizer.core.files import replace_files
from quantizer.core.library import Library
from quantizer.core.wording import shown_path
from quantizer.ir.formats import compass
from quantizer.ir.graph import Graph
from quantizer.numerics.pinned import pinned
from quantizer.ops import REGISTRY
from quantizer.ops.registry import BUILT_IN
from quantizer.optimize.adaquant import adaquant
from quantizer.optimize.autosearch import FirstBatches, Search, searched
from quantizer.optimize.cfg import Options
from quantizer.optimize.code_graph import quantized_graph
from quantizer.optimize.conversions import float_layers, with_floats
from quantizer.optimize.debugging import FLOAT32, faked_layers
from quantizer.optimize.dumping import dump_tensors, statistics_archive
from quantizer.optimize.float_ir import advice, calibration_data, validation_data, with_graph
from quantizer.optimize.gathering import gather, ranges_of
from quantizer.optimize.generations import in_generations
from quantizer.optimize.global_calibration import moved
from quantizer.optimize.global_methods import Method, methods_of
from quantizer.optimize.kept_statistics import read_statistics, with_kept
from quantizer.optimize.layer_parameters import decide
from quantizer.optimize.measuring import Score, compare_layers, measure
from quantizer.optimize.mvn_correction import Corrected, mvn_corrected
from quantizer.optimize.outputs import check_output, output_files, output_folder, output_name
from quantizer.optimize.passes import AFTER, AT, BEFORE, degraded, symmetric_where_wide
from quantizer.optimize.registered import metrics_named
from quantizer.optimize.scaled_products import unmarked
from quantizer.optimize.settings import Settings
from quantizer.optimize.template import opt_template
from quantizer.optimize.tiling import tiled
from quantizer.optimize.weight_codes import Trained, rounded
from quantizer.optimize.work import PLATFORM, Say, Work, calibration_batches, ir_batches, zeros
from quantizer.plugins.layers_without_spec import LoneLayer


def read_graph(work: Work) -> Work:
    """Step 1: read the float IR, the settings of every layer, and the data sets."""
    options = work.options
    text, blob = options.file("graph"), options.file("bin")
    assert text is not None
    assert blob is not None
    if not options["skip_optimization"]:
        check_output(options)
    work = with_graph(work, compass.read(text, blob))
    work = replace(work, calibration=calibration_data(work), validation=validation_data(work))
    # made only so that a wrong name is reported now, and not after the calibration
    metrics_named(options)
    for warning in (*options.warnings, *advice(work)):
        work.say(f"warning: {warning}")
    return work


@pinned()
def forward_zeros(work: Work) -> Work:
    """Step 2: run the float graph on zeros; it must run without an error."""
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
    # a function, because only some methods run over the calibration set, and each from its beginning
    graph = moved(work.float_graph, methods, work.keys, work.runs, lambda: calibration_batches(work))
    if graph is not work.float_graph:
        # other constants give other activations
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
    # the correction reads the parameters that these settings would give
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

    If the cfg requests it, layers that need more bits are searched first.
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
        # the search compares one number: that of the first metric
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
    # the pass ran before the search made layers wider, so it must see the new widths
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
        # built only if a method trains on it
        lambda: quantized_graph(unmarked(source), layers, decided, {}),
    )
    chosen = rounded(trained, methods)
    if chosen:
        decided = decide(source, replace(layers, rounded=chosen))
    # learned constants and ranges give other parameters, so these are chosen again
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
    # fake_quant_* changes only the graph that metrics score, never the one that is written
    scored = None if debugged == floats else with_floats(source, layers, decided, debugged)
    return replace(work, decided=decided, floats=floats, quantized=graph, scored=scored)


@pinned()
def optimize_after_quantization(work: Work) -> Work:
    """Step 7: compare layers, then passes that may change layers of the quantized graph, but no parameter."""
    loader = work.validation or work.calibration
    if loader is not None:
        count = work.options.number("similarity_data_num")
        batches = ir_batches(work, loader)
        # before the passes, which remove layers that could then not be compared
        found = compare_layers(work.runs, work.float_graph, work.quantized_graph, batches, count)
        work = replace(work, similarity=found)
    for change in AFTER:
        graph = change(work.quantized_graph, work.library.specs, work.options, work.keys)
        work = replace(work, quantized=in_generations(graph))
    graph = in_generations(tiled(work.quantized_graph, work.library.specs, work.options, work.keys))
    # the template describes the layers before they were cut into tiles
    return replace(work, layered=work.quantized_graph, quantized=graph)


@pinned()
def forward_zeros_quantized(work: Work) -> Work:
    """Step 8: run the quantized graph on zeros."""
    _on_zeros(work, work.quantized_graph)
    return work


def write_ir(work: Work) -> Work:
    """Step 9: write text, constants and opt_template.json, all or none."""
    text, blob = compass.to_bytes(compass.foreign(work.quantized_graph, work.library.specs))
    made: dict[str, Callable[[], Any]] = {
        "constants": lambda: [blob],
        "text": lambda: text,
        "template": lambda: template_of(work),
        "statistics": lambda: [statistics_archive(work.gathered)],
    }
    # all contents exist before the first file is replaced, so an error leaves the old files
    contents = {path: made[what]() for what, path in output_files(work.options).items()}
    replace_files(contents, FormatError)
    work.say(f"wrote {shown_path(output_folder(work.options) / output_name(work.options))}.txt and .bin")
    return work


@pinned()
def dump_and_measure(work: Work) -> Work:
    """Step 10: write the tensors that the cfg requests, and score both graphs on the validation set."""
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
"""A function that computes a quantized graph from ranges; it writes nothing."""


def optimize(options: Options, library: Library, say: Say = lambda text: None) -> Work:  # noqa: ARG005 - quiet
    """Run the steps of a cfg. With skip_optimization the graph is only read and measured."""
    work = Work(options, library, say)
    if options["skip_optimization"]:
        return _measured_alone(read_graph(work))
    for step in STEPS:
        work = step(work)
    return work


def quantized(options: Options, library: Library) -> Work:
    """Run all steps except the last two, without writing files."""
    work = Work(options, library)
    for step in STEPS[:-2]:
        work = step(work)
    return work


def template_of(work: Work) -> str:
    """Return the text of opt_template.json."""
    assert work.layered is not None
    return opt_template(work.layered, work.keys, work.settings, work.ranges, work.similarity)


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


def _on_zeros(work: Work, graph: Graph) -> None:
    for name, node, values in work.runs.forward(graph, zeros(work, graph)):
        wanted = graph.tensor(name).shape
        if node is not None and tuple(values.shape) != wanted:
            text = f"layer {node.name!r}: {name!r} has shape {list(values.shape)}, the IR says {list(wanted)}"
            raise FormatError(f"{text}. Correct layer_top_shape.")
