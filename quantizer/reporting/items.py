"""References to an item for other tools: file and line of its spec, and the command that runs it again."""

from __future__ import annotations

import re
import shlex

from quantizer.core.facts import Facts
from quantizer.core.record import Record
from quantizer.reporting.tally import failing_checks

_PLACE = re.compile(r"([^\s:]+\.yaml):(\d+):(\d+): ")

_KEYS = {
    "parameters": ("quantization", "inputs"),
    "float": ("error_model",),
    "arithmetic": ("quantization", "error_model"),
    "accuracy": ("error_model",),
    "exact": ("error_model",),
    "tiled": ("tiling",),
    "round_trip": ("names",),
    "pipeline": ("names",),
    "properties": ("properties",),
    "reject": ("constraints",),
}
"""Check -> the keys of a spec that define what it judges; the first one present is used."""


def spec_path(record: Record, facts: Facts | None) -> str:
    """Return the file of the item's spec, from the root of its run."""
    spec = facts.specs.get(record.op) if facts else None
    return spec.path if spec else f"op_specs/{record.op}.yaml"


def place(record: Record, facts: Facts | None) -> tuple[str, int]:
    """Return the file and the line of the spec key that an item was judged by.

    The place that the failure names; else the key of the first failing check; else the key `op`.
    """
    path = spec_path(record, facts)
    if found := _PLACE.match(record.failure):
        return found[1], int(found[2])
    lines = facts.specs[record.op].lines if facts and record.op in facts.specs else {}
    checks = [name for name, _ in failing_checks(record)] or [record.kind]
    keys = (*_KEYS.get(checks[0], ()), "op")
    return path, next((lines[key] for key in keys if key in lines), 1)


def rerun(record: Record, facts: Facts | None = None) -> str:
    """Return the command that runs one item again, from the root of its run."""
    spec = facts.specs.get(record.op) if facts else None
    shipped = f"-k {shlex.quote(record.id)} --op-shipped={record.op}" if spec is not None and spec.shipped else None
    selection = shipped or _quoted(f"{spec_path(record, facts)}::{record.id}")
    words = f" {facts.arguments}" if facts and facts.arguments else ""
    named = f"--op-platform={record.platform}"
    if facts and named in facts.selection and record.engine != "builtin":
        words = f" {named}{words}"  # on a foreign platform an engine runs only if a run names both
    engine = record.engine.split()[:1]  # the name without the instruction levels at its end
    if facts is None and engine and record.engine != "builtin":
        words = f" --op-engine={engine[0]}"
    return f"pytest {selection}{words}"


def replay_arguments(record: Record, facts: Facts | None) -> str:
    """Return the options, each after a space, with which `quantizer case replay` runs a case of the item again."""
    spec = facts.specs.get(record.op) if facts else None
    own = f" --op-specs={shlex.quote(spec.path)}" if spec is not None and spec.path_only else ""
    return own + (f" {facts.arguments}" if facts and facts.arguments else "")


def _quoted(node: str) -> str:
    """Quote a node id for a shell, always, as failures print it."""
    quoted = shlex.quote(node)
    return quoted if quoted != node else f"'{node}'"
