"""`quantizer docs`: writes the reference pages that follow from schemas, parsers and packages."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import get_args

from quantizer.core.files import replace_files
from quantizer.core.library import SCHEMES_FILE, load_spec, shipped_folder, shipped_platforms
from quantizer.core.model import Model
from quantizer.core.platforms import Platform
from quantizer.core.reference import reference_document
from quantizer.core.schemes import Schemes
from quantizer.core.spec import Spec
from quantizer.core.variants import Variant
from quantizer.core.wording import shown_path, wrote

STALE = 1
ONE_SYSTEM = "one system"
_REQUANTIZATIONS = """
## Requantizations

A requantization brings an exact sum to codes. *Zero point* says whether it is added inside the rounding or to its
result. A mode *in the mode named* is the platform's `rounding`. `multiplier_shift` rounds twice where the platform
has `first_rounding`. Your own platform may use a variant for the kinds of sums in the last column: a *product* is a
convolution, a matrix product or `mul`; a *selection* is a maximum or a minimum; *one input* is a ReLU; *mean* is
`reduce_mean`; *pooling* is `avg_pool2d`. A variant of *one system* works under that system's other settings alone:
copy its platform.

| variant | a sum is multiplied by | roundings | zero point | sums |
|---|---|---|---|---|"""
_FAMILIES = """
## Families

Most rules of a platform, and the oracles of a room, are for a family of operators.

| family | operators |
|---|---|"""
_INTROS = {
    "spec": """\
# Keys of an operator spec

Written by `quantizer docs` from the schema that editors and `quantizer spec lint` use. The examples are from the
shipped specs. A spec is one YAML file, `op_specs/<op>.yaml`. An *expression* is a number or a formula over dimensions
and attributes by name, such as `(h + 2 * padding[0] - kernel[0]) // stride[0] + 1`.""",
    "schemes": """\
# Keys of schemes

Written by `quantizer docs` from the schema. The examples are from `op_specs/schemes.yaml`. A scheme is a weight part
times an activation part. An operator without weights has only an activation part. A `schemes.yaml` in a folder of
`--op-specs` adds to the shipped one.""",
    "platforms": """\
# Keys of a platform

Written by `quantizer docs` from the schema. The examples are from the shipped platforms. A platform is one YAML file,
`platforms/<name>.yaml` in a folder of specs: the arithmetic and the parameter rules of one system.
[Requantizations](#requantizations) says what each variant computes, and `tests/unit/test_numerics_requantize.py` proves
it. [Families](#families) lists the operators of each family.""",
}


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add `docs` to the command line."""
    parser = subparsers.add_parser(
        "docs",
        help="write the reference pages of keys, numbers, options and the public API",
        description="Write spec.md, schemes.md, platforms.md, numbers.md, options.md and api.md.",
    )
    parser.add_argument(
        "--dir", metavar="DIR", type=Path, default=Path("docs/reference"), help="their folder (default: %(default)s)"
    )
    parser.add_argument("--check", action="store_true", help="write nothing; exit 1 if a page is stale")


def run(args: argparse.Namespace) -> int:
    """Write the pages that are stale, or only name them with --check."""
    stale = {path: text for path, text in pages(args.dir, args.commands).items() if _content(path) != text}
    if args.check:
        sys.stderr.writelines(f"{shown_path(path)}: is stale. Run `quantizer docs`.\n" for path in stale)
        return STALE if stale else 0
    replace_files(stale)
    sys.stdout.write(wrote(*stale))
    return 0


def pages(folder: Path, commands: Mapping[str, tuple[str, str]]) -> dict[Path, str]:
    """Return path in *folder* -> page; *commands*: name -> (module, help) of each command."""
    from quantizer.commands.api_reference import api_document
    from quantizer.commands.numbers_reference import numbers_document
    from quantizer.commands.options_reference import options_document

    shipped = shipped_folder()
    schemes = shipped / SCHEMES_FILE
    sources: dict[str, tuple[type[Model], list[Path]]] = {
        "spec": (Spec, [path for path in shipped.glob("*.yaml") if path != schemes]),
        "schemes": (Schemes, [schemes]),
        "platforms": (Platform, shipped_platforms()),
    }
    found = {
        folder / f"{name}.md": reference_document(model, [_INTROS[name]], files)
        for name, (model, files) in sources.items()
    }
    found[folder / "platforms.md"] += _requantizations() + _families()
    written = {"api": api_document(), "numbers": numbers_document(), "options": options_document(commands)}
    return found | {folder / f"{name}.md": text for name, text in written.items()}


def _requantizations() -> str:
    """Return a table of all requantizations: the multiplier, the rounding, and the kinds of sums."""
    from quantizer.conformance.probe.words import MEANINGS
    from quantizer.core.arithmetics import COMPOSING

    rows = (
        f"| `{name}` | {known.rescale} | {known.roundings} | {known.zero_point} "
        f"| {', '.join(COMPOSING.get(name, ())) or ONE_SYSTEM} |"
        for name in get_args(Variant)
        for known in (MEANINGS[name],)
    )
    return "\n".join((_REQUANTIZATIONS, *rows)) + "\n"


def _families() -> str:
    """Return a table of the families of the shipped operators."""
    found: dict[str, list[str]] = {}
    for path in sorted(shipped_folder().glob("*.yaml")):
        if path.name != SCHEMES_FILE:
            spec = load_spec(path)
            found.setdefault(spec.quantization.family, []).append(spec.op)
    rows = (f"| `{family}` | {', '.join(ops)} |" for family, ops in sorted(found.items()))
    return "\n".join((_FAMILIES, *rows)) + "\n"


def _content(path: Path) -> str | None:
    return path.read_text(encoding="utf-8") if path.is_file() else None
