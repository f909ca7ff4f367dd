"""`quantizer vectors`: writes test vectors as files that need no Python, judges results, and compares bundles."""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from quantizer.commands.shared_options import LARGEST_SEED, add_plugins, add_specs, seed_number, whole_number
from quantizer.core.errors import CaseError, UnsupportedError
from quantizer.core.wording import counted, suggestion

if TYPE_CHECKING:
    from quantizer.conformance.target import Target
    from quantizer.core.library import Library
    from quantizer.core.platforms import Platform
    from quantizer.core.spec import Spec

PASSED, FAILED, DIFFER = 0, 1, 1
MEGABYTE = 1_000_000
MOST_SHOWN = 20
USUAL = "w8a8"
"""The default scheme of a bundle, if the platform has it."""
_EPILOG = f"""\
exit status: 0 every case that can be judged passed, 1 one failed, nothing was judged or bundles differ, 2 the input
cannot be read.
Seeds: 0 to {LARGEST_SEED}. docs/vectors.md has the files of a bundle and a reader in C.
"""


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add `vectors` and its verbs to the command line."""
    vectors = subparsers.add_parser(
        "vectors",
        help="write test vectors as files, judge results from files",
        epilog=_EPILOG,
        description="Test vectors for a simulator, a board or a test suite in another language: cases with the right "
        "codes.\nUsing them needs no Python.",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    verbs = vectors.add_subparsers(title="verbs", metavar="VERB", dest="verb", required=True)
    _add_export(verbs)
    _add_judge(verbs)
    diff = verbs.add_parser("diff", help="compare what two bundles require; exit 1 if they differ")
    diff.add_argument("old", type=Path, metavar="OLD", help="folder or zip")
    diff.add_argument("new", type=Path, metavar="NEW", help="folder or zip")


def _add_export(verbs: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    export = verbs.add_parser("export", help="write a bundle: operands, provided numbers, the codes that are allowed")
    export.add_argument("--op", action="append", default=[], help="only this operator (repeatable; default: all)")
    export.add_argument(
        "--platform", action="append", default=[], help="platform of the right codes (repeatable; default: ideal)"
    )
    export.add_argument(
        "--scheme",
        action="append",
        default=[],
        help="scheme; an operator without weights takes only its activation part (repeatable; default: w8a8, or "
        "the first that the platform has)",
    )
    export.add_argument(
        "--form",
        action="append",
        default=[],
        help="write each case as a model in this form, too: onnx-qdq, tflite and others (repeatable)",
    )
    export.add_argument(
        "--cases",
        type=whole_number,
        default=8,
        metavar="N",
        help="cases of each operator, scheme and platform (default: %(default)s)",
    )
    export.add_argument(
        "--seed", type=seed_number, default=0, help="seed of shapes, attributes and data (default: %(default)s)"
    )
    export.add_argument(
        "--budget",
        type=whole_number,
        default=50,
        metavar="MB",
        help="largest bundle in megabytes; a larger one is refused (default: %(default)s)",
    )
    add_specs(export)
    add_plugins(export)
    export.add_argument(
        "-o", "--output", type=Path, required=True, metavar="BUNDLE", help="a new folder, or a new file NAME.zip"
    )


def _add_judge(verbs: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    judge = verbs.add_parser("judge", help="compare the codes of each case with their intervals")
    judge.add_argument("bundle", type=Path, metavar="BUNDLE", help="folder or zip that `export` wrote")
    judge.add_argument("results", type=Path, metavar="RESULTS", help="folder with a file CASE.bin for each case")
    judge.add_argument("--form", default="", help="results are outputs of the models in this form, in their axis order")
    judge.add_argument(
        "-o", "--output", type=Path, metavar="RUN_DIR", help="write records, as `quantizer report` reads"
    )


def run(args: argparse.Namespace) -> int:
    """Run one verb; return 0 if every case that can be judged passed, or if two bundles require the same."""
    if args.verb == "diff":
        return _diff(args)
    return _export(args) if args.verb == "export" else _judge(args)


def _export(args: argparse.Namespace) -> int:
    from quantizer.conformance.setup.options import Options
    from quantizer.conformance.setup.session import open_session
    from quantizer.conformance.vectors.export import bundle
    from quantizer.conformance.vectors.models import check_forms
    from quantizer.core.files import create_files, is_taken
    from quantizer.core.vectors import MANIFEST
    from quantizer.ir.formats.npz import zip_bytes
    from quantizer.plugins.discovery import spec_folders
    from quantizer.runtime.isolation.plugins import judged

    # before the cases are generated, which can take minutes
    if is_taken(args.output):
        raise CaseError(f"{args.output}: exists already and is not written into. Name a new folder or zip.")
    plugins = judged(args.op_plugins)
    asked = Options(root=Path.cwd(), specs=tuple(args.op_specs), plugins=tuple(args.op_plugins))
    library = open_session(asked, tuple(spec_folders(plugins))).library
    forms = [*dict.fromkeys(args.form)]
    check_forms(forms)
    # by id: without weights, w8a8 and w4a8 are one target
    targets = {target.id: target for target in _targets(args, library)}
    files = bundle([*targets.values()], args.cases, args.seed, args.budget * MEGABYTE, forms)
    if args.output.suffix == ".zip":
        create_files({args.output: [zip_bytes(files)]})
    else:
        create_files({args.output / name: [content] for name, content in files.items()})
    size = sum(map(len, files.values()))
    sys.stdout.write(f"wrote {args.output}: {counted(len(files), 'file')}, {size / MEGABYTE:.2f} MB; see {MANIFEST}\n")
    return PASSED


def _targets(args: argparse.Namespace, library: Library) -> Iterator[Target]:
    """Yield the requested targets; UnsupportedError if a named operator lacks a requested target."""
    from quantizer.conformance.target import Target

    for name in args.platform or ["ideal"]:
        platform = library.platform(name)
        for spec in [library.spec(op) for op in args.op] or library.specs.values():
            for scheme in dict.fromkeys(args.scheme or [USUAL]):
                found = _scheme(library, spec, platform, scheme)
                # the default scheme is a preference: a platform without it gives its first
                if found is None and not args.scheme:
                    found = next(iter(library.schemes_for(spec, platform)), None)
                if found is not None:
                    yield Target(spec, library.scheme(found), platform)
                elif args.op:
                    raise UnsupportedError(_why_not(library, spec, platform, scheme))


def _why_not(library: Library, spec: Spec, platform: Platform, scheme: str) -> str:
    """Return why *spec* has no target on *platform* under *scheme*, and the names that would be legal."""
    name = platform.platform
    if not (known := library.schemes_for(spec, platform)):
        others = [other for other, one in library.platforms.items() if library.schemes_for(spec, one)]
        return f"--platform={name}: it does not compute {spec.op}. Platforms that do: {', '.join(others) or 'none'}."
    return f"--scheme={scheme}: {spec.op} on {name} has no such scheme.{suggestion(scheme, known, 'Known')}"


def _scheme(library: Library, spec: Spec, platform: Platform, asked: str) -> str | None:
    """Return the scheme of *spec* with the requested name, or its activation part; None if it has neither."""
    wanted, names = library.scheme(asked), library.schemes_for(spec, platform)
    if asked in names:
        return asked
    return next(
        (name for name in names if not spec.has_weights and library.scheme(name).activation == wanted.activation), None
    )


def _judge(args: argparse.Namespace) -> int:
    from quantizer.conformance.vectors.judging import judge, records
    from quantizer.conformance.vectors.reading import opened
    from quantizer.reporting.store import write_run

    with opened(args.bundle) as bundle:
        found = [*judge(bundle, args.results, args.form)]
    counts = {state: sum(one.status == state for one in found) for state in ("pass", "fail", "open")}
    for state in ("fail", "open"):
        shown = [one for one in found if one.status == state]
        sys.stdout.writelines(f"{one}\n" for one in shown[:MOST_SHOWN])
        if len(shown) > MOST_SHOWN:
            sys.stdout.write(f"{state}: {len(shown) - MOST_SHOWN} more\n")
    elements = sum(one.elements for one in found)
    summary = {"cases": len(found), **counts, "elements": elements}
    sys.stdout.write(
        f"{counts['pass']} passed, {counts['fail']} failed, {counts['open']} open (cannot be judged) "
        f"of {counted(len(found), 'case')}, {counted(elements, 'element')} judged\n"
    )
    if args.output:
        write_run(args.output, records(found), summary)
    # nothing judged is not a pass
    return FAILED if counts["fail"] or not elements else PASSED


def _diff(args: argparse.Namespace) -> int:
    from quantizer.conformance.vectors.difference import differences
    from quantizer.conformance.vectors.reading import opened

    with opened(args.old) as old, opened(args.new) as new:
        found = [*differences(old, new)]
        versions = f"{old.manifest.quantizer} -> {new.manifest.quantizer}"
        sizes = f"{len(old.manifest.cases)} -> {counted(len(new.manifest.cases), 'case')}"
    sys.stdout.writelines(f"{one}\n" for one in found)
    counts = Counter(one.kind for one in found)
    said = ", ".join(f"{counts[kind]} {kind}" for kind in ("added", "removed", "stricter", "looser", "other"))
    sys.stdout.write(f"quantizer {versions}, {sizes}: {said}\n")
    return DIFFER if found else PASSED
