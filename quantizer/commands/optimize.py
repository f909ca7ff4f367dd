"""`quantizer optimize`: writes a quantized IR from a float IR and a cfg file; lists plugins and cfg fields."""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from tabulate import tabulate

from quantizer.commands.shared_options import add_plugins, add_specs
from quantizer.core.errors import UnsupportedError

if TYPE_CHECKING:
    from quantizer.core.library import Library

DONE, DIFFERS = 0, 1
NO_LAYER = "-"
"""Shown for an operator without a Compass layer."""


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add `optimize` to the command line."""
    parser = subparsers.add_parser(
        "optimize",
        help="quantize a float IR as a cfg file says",
        description="Read a float IR (text and bin) and a cfg, write the quantized IR as the Compass Optimizer does.",
    )
    what = parser.add_mutually_exclusive_group(required=True)
    what.add_argument("-c", "--cfg", type=Path, metavar="FILE", help="run the flow of this cfg file")
    what.add_argument(
        "-p", "--plugin", action="store_true", help="list data sets, metrics and operators with version and origin"
    )
    what.add_argument("-f", "--field", action="store_true", help="list every cfg field: default, legal values, meaning")
    what.add_argument(
        "--compare",
        type=Path,
        action="append",
        metavar="DIR",
        help="run every opt.cfg below DIR without writing, compare with the quant.txt and quant.bin beside it; exit 1 "
        "if one differs (repeatable)",
    )
    add_specs(parser)
    add_plugins(parser)
    parser.add_argument("--quiet", action="store_true", help="say nothing but errors")


def run(args: argparse.Namespace) -> int:
    """Run one option; return 1 if a comparison differs."""
    if args.field:
        return _fields()
    if args.plugin:
        return _plugins(args)
    if args.compare:
        return _compare(args)
    from quantizer.optimize.cfg import read_cfg
    from quantizer.optimize.steps import optimize

    options = read_cfg(args.cfg)
    optimize(options, _library(args), _hush if args.quiet else _say)
    return DONE


def _hush(_: str) -> None:
    """Discard a message."""


def _say(text: str) -> None:
    stream = sys.stderr if text.startswith("warning") else sys.stdout
    stream.write(f"{text}\n")


def _library(args: argparse.Namespace) -> Library:
    from quantizer.core.library import load_library
    from quantizer.ops import load_built_ins
    from quantizer.plugins.bridge import connect
    from quantizer.plugins.discovery import load_plugins, spec_folders

    load_built_ins()
    plugins = load_plugins(args.op_plugins, dict(os.environ))
    library = load_library([*spec_folders(plugins), *args.op_specs])
    # layers without a spec are allowed: the flow runs them on the IR
    for entry in connect(library.specs, alone=True):
        if not args.quiet:
            _say(f"plugin: {entry}")
    return library


def _fields() -> int:
    from quantizer.optimize.fields import FIELDS
    from quantizer.optimize.per_layer import SYNTAX

    rows = [
        {
            "field": field.name + (" *" if field.per_layer else "") + (" (hidden)" if field.hidden else ""),
            "default": field.default.lower() if field.default in ("True", "False") else field.default,
            "legal": field.kind.legal,
            "meaning": field.meaning + ("" if field.status == "acted on" else f" ({_status(field.status)})"),
        }
        for field in sorted(FIELDS.values(), key=lambda field: field.hidden)
    ]
    widths = [None, 26, 44, 60]
    sys.stdout.write(tabulate(rows, headers="keys", maxcolwidths=widths, disable_numparse=True) + "\n")
    sys.stdout.write(f"* also for some layers: {SYNTAX}\n")
    return DONE


def _status(status: str) -> str:
    return "read, but not acted on" if status == "ignored" else "only the default"


def _plugins(args: argparse.Namespace) -> int:
    from quantizer.ir.formats.compass_mapping import FORMAT
    from quantizer.ops import REGISTRY
    from quantizer.optimize.registered import register_built_ins
    from quantizer.plugins.classes import CLASSES

    library = _library(args)
    register_built_ins()
    rows = [
        {
            "kind": plugin.kind.value,
            "name": plugin.name,
            "version": ".".join(map(str, plugin.version)),
            "origin": plugin.file,
        }
        for known in CLASSES.entries.values()
        # the highest version, which is the one that runs
        for plugin, _ in known[-1:]
    ]
    for op in REGISTRY.operators():
        spec = library.specs.get(op)
        layer = spec.formats[FORMAT].type if spec is not None and FORMAT in spec.formats else NO_LAYER
        for kind in ("reference", "quantize", "quantized"):
            entry = REGISTRY.find(op, kind, "compass")
            if entry is not None:
                version = ".".join(map(str, entry.version))
                rows.append(
                    {"kind": f"operator {kind}", "name": f"{layer} ({op})", "version": version, "origin": entry.origin}
                )
    rows.sort(key=lambda row: (row["kind"], row["name"].lower()))
    sys.stdout.write(tabulate(rows, headers="keys", disable_numparse=True) + "\n")
    return DONE


def _compare(args: argparse.Namespace) -> int:
    from quantizer.optimize.comparing import compare_folder, table

    library = _library(args)
    found = [result for folder in args.compare for result in compare_folder(folder, library)]
    if not found:
        raise UnsupportedError(
            f"{args.compare[0]}: no opt.cfg with a quant.txt next to it. Name a folder of recorded runs."
        )
    sys.stdout.write(table(found) + "\n")
    return DONE if all(result.verdict != "different" for result in found) else DIFFERS
