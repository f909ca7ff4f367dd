"""`quantizer spec`: writes, checks and lists operator specs."""

from __future__ import annotations

import argparse
import json
import shlex
import sys
from collections.abc import Callable, Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Any, get_args

from tabulate import tabulate

from quantizer.commands.new_operator import write_operator
from quantizer.commands.operator_templates import Kind
from quantizer.core.library import Library, load_library, shipped_folder
from quantizer.core.linting import lint, linted_platforms, others
from quantizer.core.schema import stale_schemas, write_schemas
from quantizer.core.spec import NoTiling, Spec
from quantizer.core.streams import write_commands
from quantizer.core.wording import shown_path, wrote

STALE = 1
WRONG = 2

_EPILOG = """\
examples:
  quantizer spec new hard_swish
  quantizer spec new my_gate --kind fused
  quantizer spec new my_op --kind custom --dir ../vendor --plugins ../vendor/my_plugins
  quantizer spec lint my_specs/
  quantizer spec list --json
"""


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add `spec` and its verbs to the command line."""
    spec = subparsers.add_parser(
        "spec",
        help="write, check and list operator specs",
        description="Write, check and list operator specs.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    verbs = spec.add_subparsers(title="verbs", dest="spec_verb", metavar="VERB", required=True)
    linter = verbs.add_parser("lint", help="report all errors in specs, schemes and platforms")
    linter.add_argument("paths", metavar="PATH", type=Path, nargs="*", help="files or folders (default: the library)")
    linter.add_argument(
        "--format", choices=("text", "github"), default="text", help="github: annotations of a workflow (default: text)"
    )
    schema = verbs.add_parser("schema", help="write the JSON schemas that editors read")
    schema.add_argument("--check", action="store_true", help="write nothing; exit 1 if a schema is stale")
    schema.add_argument(
        "--dir", metavar="DIR", type=Path, help="folder of specs that gets the schemas (default: the library)"
    )
    lister = verbs.add_parser("list", help="list the operators of the library")
    lister.add_argument("paths", metavar="PATH", type=Path, nargs="*", help="folders or specs to add to the library")
    lister.add_argument("--json", action="store_true", help="write JSON")
    new = verbs.add_parser("new", help="write the spec and the module of a new operator")
    new.add_argument("name", metavar="NAME", help="its name: snake_case, unused")
    new.add_argument("--dir", metavar="DIR", type=Path, default=Path(), help="the repository (default: here)")
    new.add_argument(
        "--kind",
        choices=get_args(Kind),
        default="elementwise",
        help="what to begin with: one shape for all (elementwise), a function of one input that is read from a table "
        "(table), named axes and an attribute (custom), or two roundings, declared as stages (fused); "
        "default: %(default)s",
    )
    new.add_argument(
        "--plugins", metavar="DIR", type=Path, help="where the module goes (default: quantizer/ops or DIR/op_plugins)"
    )


def run(args: argparse.Namespace) -> int:
    """Run the parsed command; return the exit code."""
    verbs: Mapping[str, Callable[[argparse.Namespace], int]] = {
        "lint": _lint,
        "schema": _schema,
        "list": _list,
        "new": _new,
    }
    return verbs[args.spec_verb](args)


def _lint(args: argparse.Namespace) -> int:
    # without torch, files are still checked, but no platform runs
    tried = find_spec("torch") is not None
    known = others(args.paths, _operators_of_packages()) if tried else []
    problems, counts = lint(args.paths, known)
    # a platform runs only if everything can be read
    platforms = linted_platforms(args.paths) if not problems else []
    if platforms and tried:
        from quantizer.conformance.spec_checks.platform_trials import platform_problems

        folders = dict.fromkeys([*(folder for _, folder in platforms if folder is not None), *known])
        problems = [*platform_problems(dict.fromkeys(name for name, _ in platforms), [*folders])]
    sys.stderr.writelines(f"{problem}\n" for problem in problems)
    if args.format == "github":
        from quantizer.reporting.annotations import of_messages

        write_commands(command for problem in problems for command in of_messages(problem))
    if problems:
        return WRONG
    parts = [f"{count} {kind}{'' if count == 1 else 's'} ok" for kind, count in counts.items() if count]
    if platforms and not tried:
        parts.append("platforms not run: torch is not installed")
    sys.stdout.write(", ".join(parts) + "\n")
    return 0


def _operators_of_packages() -> list[Path]:
    """Return the spec folders of installed packages, whose operators a platform may name."""
    from quantizer.plugins.discovery import installed

    if not installed():
        # without the import below, which loads torch
        return []
    from quantizer.runtime.isolation.plugins import installed_specs

    return installed_specs()


def _schema(args: argparse.Namespace) -> int:
    folder = args.dir or shipped_folder()
    if args.check:
        stale = stale_schemas(folder)
        for path in stale:
            sys.stderr.write(f"{shown_path(path)}: is stale. Run `quantizer spec schema`.\n")
        return STALE if stale else 0
    sys.stdout.write(wrote(*write_schemas(folder)))
    return 0


def _list(args: argparse.Namespace) -> int:
    library = load_library(args.paths)
    rows = [_row(spec, library) for spec in library.specs.values()]
    if args.json:
        sys.stdout.write(json.dumps(rows, indent=2, ensure_ascii=False) + "\n")
        return 0
    table = [
        (row["op"], row["version"], row["summary"], row["items"], " ".join(row["tiling"]), " ".join(row["properties"]))
        for row in rows
    ]
    headers = ("op", "version", "summary", "schemes x platforms", "tiling", "properties")
    widths = [None, None, 48, None, 24, 24]
    sys.stdout.write(tabulate(table, headers=headers, maxcolwidths=widths, disable_numparse=True) + "\n")
    names = ", ".join(sorted(library.platforms))
    sys.stdout.write(f"{len(rows)} operators on {len(library.platforms)} platforms: {names}\n")
    return 0


def _row(spec: Spec, library: Library) -> dict[str, Any]:
    schemes = {name: library.schemes_for(spec, platform) for name, platform in library.platforms.items()}
    return {
        "op": spec.op,
        "version": spec.version,
        "summary": spec.summary,
        "items": sum(map(len, schemes.values())),
        "schemes": schemes,
        "tiling": ["none"] if isinstance(spec.tiling, NoTiling) else list(spec.tiling),
        "properties": list(dict.fromkeys(item.relation for item in spec.properties)),
        "file": shown_path(library.paths[spec.op]),
    }


def _new(args: argparse.Namespace) -> int:
    spec, module, plugins = write_operator(args.name, args.kind, args.dir, args.plugins)
    sys.stdout.write(wrote(spec, module))
    words = ["pytest", shown_path(spec), *(["--op-plugins", shown_path(plugins)] if plugins else [])]
    sys.stdout.write(f"next: {shlex.join(words)}\n")
    return 0
