"""Compares recorded runs of the Compass Optimizer with ours: every line of text, byte of constants and output code."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, TypeVar

import numpy as np
import torch
from tabulate import tabulate

from quantizer.core.errors import FormatError, QuantizerError
from quantizer.core.files import is_file
from quantizer.core.library import Library
from quantizer.core.reading import Readable
from quantizer.core.wording import shown_path
from quantizer.ir.formats import compass
from quantizer.ir.formats.compass_read_back import with_parameters
from quantizer.ir.formats.npz import read_npz
from quantizer.ir.graph import Graph
from quantizer.optimize.cfg import read_cfg
from quantizer.optimize.last_bit_tolerance import SHOWN, LastBits
from quantizer.optimize.layers_without_spec import with_own_layers
from quantizer.optimize.loader import Loader
from quantizer.optimize.registered import dataset_named
from quantizer.optimize.running import Runner
from quantizer.optimize.steps import quantized, template_of
from quantizer.optimize.work import PLATFORM, Work

RECORDED = Readable("a file of a recorded run", 1 << 30, FormatError, "Record the run again.")

COLUMNS = (
    "scales",
    "zero points",
    "formats",
    "multipliers",
    "shifts",
    "weights",
    "biases",
    "tables",
    "parameters",
    "structure",
    "bytes",
    "template",
    "codes",
)
STAMPED = re.compile(r"((?:De)?Quantize_(?:tensor_)?\d+)_\d{9,11}_\d+_\d+_\d+_")
"""The name of an inserted layer or tensor. The original puts the time and a random number into it."""
SAMPLES = (("calibration_data", 0, 0), ("calibration_data", 1, 1), ("val.npy", 2, 2))
"""The source of each sample b<n> of ref.npz: (a field or a file beside the cfg, the index in it, n)."""
Lines = dict[str, dict[str, str]]
T = TypeVar("T")


Verdict = Literal["equal", "equal but for last bits", "different"]


@dataclass(frozen=True)
class Compared:
    """How many of a run's fields are equal, by column."""

    run: str
    equal_of: Mapping[str, tuple[int, int]]
    first: str = ""
    """The first difference."""
    forgiven: tuple[str, ...] = ()
    """Differences in the last bits of a library's float32 functions and sums, each within its error bound."""

    @property
    def verdict(self) -> Verdict:
        """equal: every byte. equal but for last bits: the allowed differences explain all that was found."""
        if self.first or not all(equal == count for equal, count in self.equal_of.values()):
            return "different"
        return "equal but for last bits" if self.forgiven else "equal"


def compare_folder(folder: Path, library: Library) -> Iterator[Compared]:
    """Yield the comparison of every run below *folder*: each is an opt.cfg with a quant.txt next to it."""
    for cfg in sorted(folder.glob("**/opt.cfg")):
        if (cfg.parent / "quant.txt").is_file():
            yield compare_run(cfg, library, str(cfg.parent.relative_to(folder)) or shown_path(folder))


def compare_run(cfg: Path, library: Library, name: str) -> Compared:
    """Run a cfg without writing, and compare its would-be files and its output codes with the recorded ones."""
    try:
        options = read_cfg(cfg)
        work = quantized(options, library)
        differences = _differences(work, cfg.parent, None)
        if not differences.first:
            return Compared(name, differences.counts)
        # only a run that differs pays for the second computation, which starts from the recorded ranges
        last_bits = LastBits(work)
        path = _template_path(work, cfg.parent)
        again = last_bits.with_recorded_ranges(_recorded(path, _template) if path.is_file() else {})
        explained = _differences(again, cfg.parent, last_bits)
    except QuantizerError as err:
        return Compared(name, {}, str(err))
    if explained.first or not last_bits.listed:
        return Compared(name, differences.counts, differences.first)
    return Compared(name, explained.counts, forgiven=tuple(dict.fromkeys(last_bits.listed)))


def _differences(work: Work, folder: Path, last_bits: LastBits | None) -> _Differences:
    """Compare all results of a run with those recorded in *folder*; *last_bits*: which differences are allowed."""
    library, found = work.library, _Differences()
    text, blob = compass.to_bytes(compass.foreign(work.quantized_graph, library.specs))
    wanted_text = _recorded(folder / "quant.txt", _text)
    wanted_blob = _recorded(folder / "quant.bin", RECORDED.bytes_of)
    # our names carry no time stamp, so it is removed from the recorded ones alone
    _compare_text(found, STAMPED.sub(r"\1", wanted_text), wanted_blob, text, blob)
    # the constants again as a whole: padding and order between them belong to no layer
    found.add("bytes", "quant.bin", wanted_blob == blob)
    _compare_template(found, folder, work, last_bits)
    _compare_codes(found, folder, work, read_back(text, blob, library))
    return found


def _recorded(path: Path, read: Callable[[Path], T]) -> T:
    """Return the result of *read* on a recorded file; FormatError if the file has another format."""
    try:
        return read(path)
    except OSError as err:
        raise FormatError(f"{shown_path(path)}: cannot be read: {(err.strerror or str(err)).lower()}.") from None
    except (ValueError, KeyError, RecursionError) as err:
        raise FormatError(
            f"{shown_path(path)}: is not a file of a recorded run: {err}. Record the run again."
        ) from None


def _text(path: Path) -> str:
    return RECORDED.text_of(path)


def _template(path: Path) -> dict[str, dict[str, Any]]:
    found = RECORDED.parsed(STAMPED.sub(r"\1", _text(path)), shown_path(path))
    if not isinstance(found, dict) or not all(isinstance(item, dict) for item in found.values()):
        raise ValueError("no object of layers, each an object of keys")
    return found


def read_back(text: str, blob: bytes, library: Library) -> Graph:
    """Return the quantized graph of a text and its constants, ready to run."""
    return runnable(compass.from_bytes(text, blob), library)


def runnable(theirs: Graph, library: Library) -> Graph:
    """Return a graph of Compass layers, float or quantized, converted to our operators and ready to run."""
    graph = compass.native(theirs, library.specs)
    platform = library.platform(PLATFORM)
    return with_own_layers(with_parameters(graph, library.specs, platform), library.specs, platform)


def table(found: list[Compared]) -> str:
    """Return runs x columns in percent, a line of totals, and the first difference of each run that has one."""
    rows = [[item.run, *(_percent(item.equal_of.get(column)) for column in COLUMNS)] for item in found]
    totals = []
    for column in COLUMNS:
        pairs = [item.equal_of[column] for item in found if column in item.equal_of]
        totals.append(_percent((sum(e for e, _ in pairs), sum(c for _, c in pairs)) if pairs else None))
    rows.append([counted(found), *totals])
    lines = [tabulate(rows, headers=["run", *COLUMNS], disable_numparse=True)]
    lines += [f"{item.run}: {item.first}" for item in found if item.first]
    lines += [f"{item.run}: equal but for last bits: {what}" for item in found for what in item.forgiven]
    return "\n".join(lines)


def counted(found: Sequence[Compared]) -> str:
    """Return how many runs are equal, and how many more are equal but for last bits."""
    counts = Counter(item.verdict for item in found)
    text = f"{counts['equal']} of {len(found)} equal"
    near = counts["equal but for last bits"]
    return f"{text}, {near} more but for last bits" if near else text


def _percent(pair: tuple[int, int] | None) -> str:
    if pair is None or not pair[1]:
        return "-"
    return "100 %" if pair[0] == pair[1] else f"{100 * pair[0] / pair[1]:.1f} %"


class _Differences:
    """Counts of equal fields, and the first difference."""

    def __init__(self) -> None:
        self.counts: dict[str, tuple[int, int]] = {}
        self.first = ""

    def add(self, column: str, where: str, equal: bool, wanted: object = "", got: object = "") -> None:  # noqa: FBT001
        """Count one field."""
        before = self.counts.get(column, (0, 0))
        self.counts[column] = (before[0] + equal, before[1] + 1)
        if not equal and not self.first:
            shown = f": {str(wanted)[:80]} recorded, {str(got)[:80]} here" if wanted != "" or got != "" else " differs"
            self.first = f"{where}{shown}"


def _sections(text: str) -> Lines:
    """Return layer ('' for the header) -> key -> value."""
    found: Lines = {}
    # a blank line separates layers; the header has no layer_name
    for block in re.split(r"\n\s*\n", text.strip()):
        lines = dict(line.partition("=")[::2] for line in block.splitlines() if line.strip())
        found[lines.get("layer_name", "")] = {key.strip(): value.strip() for key, value in lines.items()}
    return found


def _compare_text(differences: _Differences, wanted_text: str, wanted_blob: bytes, text: str, blob: bytes) -> None:
    theirs, ours = _sections(wanted_text), _sections(text)
    differences.add("structure", "layers", list(theirs) == list(ours), list(theirs), list(ours))
    for layer, wanted in theirs.items():
        got = ours.get(layer, {})
        where = f"layer {layer!r}" if layer else "header"
        differences.add("structure", f"{where}: order of lines", list(wanted) == list(got), list(wanted), list(got))
        # a key `<stem>_offset` says where a constant lies in the second file; the values there are compared too
        stems = {key.removesuffix("_offset") for key in wanted if key.endswith("_offset")}
        for key in sorted(wanted.keys() | got.keys()):
            column = _column(key, stems)
            same = wanted.get(key) == got.get(key)
            differences.add(column, f"{where}: {key}", same, wanted.get(key, "absent"), got.get(key, "absent"))
        for stem in sorted(stems):
            pair = _constant(wanted, stem, wanted_blob), _constant(got, stem, blob)
            differences.add(_column(stem, set()), f"{where}: values of {stem}", pair[0] == pair[1])


def _constant(lines: Mapping[str, str], stem: str, blob: bytes) -> bytes | None:
    try:
        start, size = int(lines[f"{stem}_offset"]), int(lines[f"{stem}_size"])
    except (KeyError, ValueError):
        return None
    return blob[start : start + size]


def _column(key: str, stems: set[str]) -> str:
    """Return the column that a key belongs to; lines about a constant in the file are structure."""
    stem, _, part = key.rpartition("_")
    if stem in stems and part in ("offset", "size", "shape"):
        return "structure"
    if part in ("type", "range") and key != "layer_type":
        return "formats"
    if key in ("scale", "scale_value", "norm_scale_value"):
        return "multipliers"
    if key in ("shift", "shift_value", "norm_shift_value", "var_shift_value"):
        return "shifts"
    if part == "scale":
        return "scales"
    if part == "zp":
        return "zero points"
    if key in ("weights", "biases"):
        return key
    if key == "lut":
        return "tables"
    return "structure" if key.startswith(("layer_", "model_", "input_", "output_")) else "parameters"


def _template_path(work: Work, folder: Path) -> Path:
    return folder / f"{work.options.text('model_name')}_opt_template.json"


def _compare_template(differences: _Differences, folder: Path, work: Work, last_bits: LastBits | None) -> None:
    """Compare opt_template.json, if the run left one: every setting, number and similarity of every layer."""
    path = _template_path(work, folder)
    if not path.is_file():
        return
    theirs = _recorded(path, _template)
    ours = json.loads(template_of(work))
    for layer in {**theirs, **ours}:
        wanted, got = theirs.get(layer, {}), ours.get(layer, {})
        for key in sorted(wanted.keys() | got.keys()):
            where = f"{path.name}: {layer}.{key}"
            same = wanted.get(key) == got.get(key)
            if not same and key == SHOWN and last_bits is not None:
                same = last_bits.forgives(layer, wanted.get(key), got.get(key))
            differences.add("template", where, same, wanted.get(key), got.get(key))


def _compare_codes(differences: _Differences, folder: Path, work: Work, graph: Graph) -> None:
    """Compare output codes of the graph that was read back, on the samples that ref.npz has."""
    options, library = work.options, work.library
    file = folder / "ref.npz"
    if not file.is_file():
        return
    runner = Runner(library.specs, library.platform(PLATFORM).quantizer, work.runs.batch)
    recorded = _recorded(file, read_npz)
    held = [sample for sample in SAMPLES if any(key.startswith(f"b{sample[-1]}_q_out") for key in recorded)]
    if not held:
        raise FormatError(f"{shown_path(file)}: holds no output of a sample, such as 'b0_q_out0'. Record it again.")
    for source, index, number in held:
        path = options.file(source) if source in options.fields else folder / source
        if path is None or not is_file(path):
            continue
        loader = Loader(
            options.text("dataset"), dataset_named(options, path, None), work.float_graph, 1, source=str(path)
        )
        batches = [feeds for feeds, _ in loader.batches()]
        # a data set with too few samples gives its last one
        feeds = batches[min(index, len(batches) - 1)]
        for place, values in enumerate(runner.outputs(graph, feeds)):
            key = f"b{number}_q_out{place}"
            if key not in recorded:
                raise FormatError(
                    f"{shown_path(file)}: holds no {key!r}, an output of sample {number}. Record it again."
                )
            wanted = torch.from_numpy(recorded[key].astype(np.float64))
            differences.add("codes", f"output {place} of sample {number}", torch.equal(values.double(), wanted))
