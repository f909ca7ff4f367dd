"""`quantizer spec new`: writes the two files of a new operator.

They run without changes, and failing checks say what to do next.
"""

from __future__ import annotations

import re
from pathlib import Path

from quantizer.commands.operator_templates import MODULES, SPECS, Kind
from quantizer.core.errors import SpecError
from quantizer.core.files import create_files
from quantizer.core.library import SCHEMES_FILE, shipped_folder, spec_files
from quantizer.core.model_errors import IDENTIFIER
from quantizer.core.schema import schema_text
from quantizer.core.spec import Spec
from quantizer.core.spec_rules import RESERVED
from quantizer.core.wording import shown_path

SCHEMA = "operator.schema.json"
MAX_NAME = 40


def write_operator(name: str, kind: Kind, folder: Path, plugins: Path | None) -> tuple[Path, Path, Path | None]:
    """Write the spec and the module of operator *name*; return their paths, and the plugin folder if one is used.

    In a checkout of this repository, the module goes to quantizer/ops. SpecError for a name that is taken or not
    snake_case, and nothing is written.
    """
    _check_name(name, folder)
    # an operator of this repository is built in; elsewhere it is a plugin
    is_checkout = (folder / "quantizer" / "ops" / "__init__.py").is_file()
    if plugins is None and not is_checkout:
        plugins = folder / "op_plugins"
    spec = folder / "op_specs" / f"{name}.yaml"
    module = (plugins or folder / "quantizer" / "ops") / f"{name}.py"
    title = name.replace("_", " ").capitalize()
    texts = {module: MODULES[kind].format(name=name, title=title)}
    if not (schema := spec.parent / SCHEMA).exists():
        texts[schema] = schema_text(Spec)
    create_files(texts | {spec: SPECS[kind].format(name=name)})  # the spec last: without it there is no operator
    return spec, module, plugins


def _check_name(name: str, folder: Path) -> None:
    if not re.fullmatch(IDENTIFIER, name) or len(name) > MAX_NAME:
        # from CamelCase and dashes to snake_case, as a suggestion
        better = re.sub(
            r"[^a-z0-9]+", "_", re.sub(r"(?<=[a-z])(?=[A-Z])|(?<=[0-9])(?=[A-Z][a-z])", "_", name).lower()
        ).strip("_")
        hint = f" Write {better!r}." if re.fullmatch(IDENTIFIER, better) and len(better) <= MAX_NAME else ""
        raise SpecError(f"{name!r}: must be snake_case: small letters, digits and _, a letter first.{hint}")
    if name in RESERVED or f"{name}.yaml" == SCHEMES_FILE:
        raise SpecError(f"{name!r}: is a reserved word. Choose another name.")
    own = folder / "op_specs"
    taken = {path.stem: path for path in spec_files([shipped_folder(), *([own] if own.is_dir() else [])])}
    if name in taken:
        raise SpecError(f"{name!r}: is taken by {shown_path(taken[name])}. Choose another name.")
