"""The text of a failure, and its replay file."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

from quantizer.conformance.expected.parameters import activation_codes
from quantizer.conformance.failures.accepted import reading_lines
from quantizer.conformance.failures.element import element_lines, grid, row
from quantizer.conformance.failures.tensors import stored_tensors
from quantizer.conformance.trials.trial import Trial
from quantizer.core.case import Case
from quantizer.core.files import replace_files
from quantizer.core.verdict import Verdict
from quantizer.core.wording import counted, visible
from quantizer.numerics.qparams import QParams
from quantizer.runtime.raised import raised

SUSPECTS = {
    "parameters": "the quantize rule",
    "float": "the reference, or the engine's float forward",
    "arithmetic": "the integer forward",
    "accuracy": "the bounds library, where all other checks pass",
    "exact": "the accumulation",
    "tiled": "the tile rule: windows, halo, or per-tile parameters",
    "round_trip": "the file format",
    "pipeline": "the flow: its input, its parameters, or its output files",
    "properties": "the integer forward: indexing or state",
    "repeat": "state kept between runs, or the spec's tile rule, which cuts the smaller batch",
}


OF_OUTPUT = ("float", "arithmetic", "accuracy", "exact", "tiled", "repeat", "engine")
"""Checks whose worst element is an output element, in the operator's own axis order."""


def describe(item_id: str, case: Case, trial: Trial, verdicts: Sequence[Verdict], *, rerun: str, replay: str) -> str:
    """Return the text of a failure: item, worst element, interval, accumulator, suspect, graph, and how to rerun it."""
    failing = [verdict for verdict in verdicts if verdict.failing]
    first = failing[0]
    others = [v.check for v in verdicts if v.status in ("pass", "mistrusted")]
    lines = [f"{item_id}: {headline(first)}"]
    made_of = _made_of(trial, failing)
    # the accumulator is shown once: with all terms, if the element has them
    summed = row("accumulator", "")
    lines += [
        line for line in _element(first) if not (line.startswith(summed) and any(m.startswith(summed) for m in made_of))
    ]
    lines += made_of
    lines.append(f"  suspect     {SUSPECTS.get(first.check, first.check)}{_stage(first)}")
    if len(failing) > 1:
        lines.append(f"  also        {', '.join(v.check for v in failing[1:])} fail")
    lines.append(f"  passing     {', '.join(others) or 'nothing else'}")
    lines += reading_lines(trial, failing)
    lines += [f"  graph       {graph_line(case)}", f"  data        {_data_line(case)}"]
    lines += [f"  rerun       {rerun}", f"  replay      {replay}"]
    return visible("\n".join(lines))


def _stage(verdict: Verdict) -> str:
    """Return the declared stage that fails, as the end of a line; empty if it is the output itself."""
    worst = verdict.worst
    return f", stage {worst.tensor}" if verdict.check == "arithmetic" and worst and worst.tensor != "y" else ""


def headline(verdict: Verdict) -> str:
    """Return one sentence: the check that failed, and on how many elements or why."""
    if verdict.reason and verdict.worst is None:
        return f"{verdict.check}: {verdict.reason}"
    reason = f" ({verdict.reason})" if verdict.reason else ""
    return f"{verdict.check}: {verdict.failed} of {verdict.elements} elements outside their interval{reason}"


def _element(verdict: Verdict) -> list[str]:
    worst = verdict.worst
    if worst is None:
        return []
    place = f"{worst.tensor}[{','.join(map(str, worst.index))}]" if worst.index else worst.tensor
    ratio = f"  ratio {verdict.ratio:.3g}" if 1.005 <= verdict.ratio < float("inf") else ""
    lines = [
        f"  worst       {place}{ratio}",
        f"  expected    {worst.expected}",
        f"  got         {worst.got}",
        f"  allowed     {worst.allowed}",
    ]
    return lines + [f"  {name:<11} {value}" for name, value in worst.detail.items()]


def graph_line(case: Case) -> str:
    """Return the graph in one line: operator, operand shapes, attributes, order, tiles."""
    operands = ", ".join(f"{name}: {list(shape)}" for name, shape in case.shapes.items())
    attrs = " ".join(f"{name}={list(v) if isinstance(v, tuple) else v}" for name, v in case.attrs.items())
    tiles = f" tiles={case.tiles}" if case.tiles.sizes else ""
    fused = f" then {case.activation}" if case.activation != "none" else ""
    return f"{case.op}({operands}) {attrs} {case.order}{fused}{tiles}".replace("  ", " ")


def _data_line(case: Case) -> str:
    kept = {name: len(coordinates) for name, coordinates in case.data.kept.items()}
    shown = ", ".join(
        f"{name}: {counted(count, 'value')} kept, others set to 0" if count else f"{name}: all values set to 0"
        for name, count in kept.items()
    )
    return f"{case.data.set}, seed {case.data.seed}" + (f"; {shown}" if shown else "")


def _made_of(trial: Trial, failing: Sequence[Verdict]) -> list[str]:
    """Return the operands, numbers and terms of the first failing output element, or parameters if none is named."""
    try:
        parameters = trial.parameters
    except Exception:  # noqa: BLE001 - a rule that raises is reported by the verdict itself
        return []
    outputs = [row(name, grid(params) + _cut(trial, params)) for name, params in parameters.outputs.items()]
    worst = (v.worst for v in failing if v.check in OF_OUTPUT and v.worst and not v.worst.elsewhere)
    index = next((one.index for one in worst if _inside(trial, one.index)), None)
    if index is None:
        inputs = parameters.inputs.items()
        return [row(name, grid(params)) for name, params in inputs if name in trial.case.shapes] + outputs
    try:
        return element_lines(trial, index) + outputs
    except Exception as err:  # noqa: BLE001 - what is under test may raise here too; the verdict is still printed
        return [*outputs, row("operands", f"cannot be shown: {raised(err)}")]


def _cut(trial: Trial, output: QParams) -> str:
    """Return the range of codes that a fused activation leaves of *output*, as a part of its line."""
    fused = trial.case.activation
    if fused == "none" or output.dtype.kind == "float" or trial.parameters.fused is not None:
        return ""
    platform, ends = trial.target.platform, (output.qmin, output.qmax)
    scale, zero, variant = float(output.scale), int(output.zero_point), trial.parameters.variant or ""
    low, high = activation_codes(platform, variant, fused, ends, scale, zero)
    return f", codes {low} to {high} after {fused}"


def _inside(trial: Trial, index: Sequence[int]) -> bool:
    shape = trial.output_shape
    return len(index) == len(shape) and all(0 <= i < size for i, size in zip(index, shape, strict=True))


OF_THE_RUN = ("  rerun ", "  replay ")
"""Beginnings of lines that name folders of a run. They would differ between its shards and the whole."""


def replay_path(folder: Path, item_id: str, case: Case) -> Path:
    """Return the path of a failing case's replay file."""
    return folder / f"{item_id}-{case.digest}.json"


def write_replay(
    path: Path, item_id: str, trial: Trial, verdicts: Sequence[Verdict], text: str, *, ran: bool = True
) -> None:
    """Write a self-contained replay file of a failing case, with the text of the failure.

    Small tensors are stored in the file. *ran*: False if the case ended the process that ran it. It is then not run
    again for its tensors.
    """
    replace_files({path: replay_content(item_id, trial, verdicts, text, ran=ran)})


def replay_content(item_id: str, trial: Trial, verdicts: Sequence[Verdict], text: str, *, ran: bool = True) -> str:
    """Return the contents of a replay file."""
    failing = [v for v in verdicts if v.failing]
    content: dict[str, object] = {
        "case": trial.case.to_dict(),
        "item": item_id,
        "checks": [v.check for v in failing],
        "finding": headline(failing[0]) if failing else "",
        "text": "\n".join(line for line in text.splitlines() if not line.startswith(OF_THE_RUN)),
    }
    if ran and (tensors := stored_tensors(trial)):
        content["tensors"] = tensors
    return json.dumps(content, indent=1, sort_keys=True) + "\n"
