"""`quantizer spec new`: write the two files of a new operator. They run at once; one failing check names the next step."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Literal

from quantizer.core.errors import SpecError
from quantizer.core.files import create_files
from quantizer.core.library import SCHEMES_FILE, shipped_folder, spec_files
from quantizer.core.model_errors import IDENTIFIER
from quantizer.core.schema import schema_text
from quantizer.core.spec import Spec
from quantizer.core.spec_rules import RESERVED
from quantizer.core.wording import shown_path

Kind = Literal["elementwise", "custom"]
SCHEMA = "operator.schema.json"
MAX_NAME = 40

_SPECS: dict[Kind, str] = {
    "elementwise": """\
# yaml-language-server: $schema=operator.schema.json
op: {name}
version: "1.0"
summary: Each element as it is; write here what {name} computes.

dims:
  shape: {{type: shape, rank: [1, 4], min: 1, max: 6}}

inputs:
  x: {{axes: shape}}
outputs:
  y: {{}}

shape:
  y: shape

error_model: {{kind: movement}}
quantization: {{family: movement, outputs: {{y: same_as(x)}}}}

tiling:
  "*": {{rule: independent}}

oracle: torch.clone
""",
    "custom": """\
# yaml-language-server: $schema=operator.schema.json
op: {name}
version: "1.0"
summary: Each element as it is, in groups of channels; write here what {name} computes, and name a function that judges it.

dims:
  n: {{min: 1, max: 3, bins: {{one: {{max: 1}}, batch: {{min: 2}}}}}}
  c: {{multiple_of: groups, min: groups, max: 2 * groups}}
  h: {{min: 1, max: 5}}
  w: {{min: 1, max: 5}}

attrs:
  groups: {{min: 1, max: 4, default: 1, bins: {{one: {{max: 1}}, several: {{min: 2}}}}}}

inputs:
  x: {{axes: [n, c, h, w], spatial: true}}
outputs:
  y: {{axes: [n, c, h, w], spatial: true}}

shape:
  y: [n, c, h, w]

constraints:
  - {{require: groups >= 1, error: "groups={{groups}} must be at least 1"}}
  - {{require: groups < 1 or c % groups == 0, error: "groups={{groups}} must divide c={{c}}"}}

error_model: {{kind: movement}}
quantization: {{family: movement, outputs: {{y: same_as(x)}}}}

tiling:
  n: {{rule: independent}}
  h: {{rule: independent}}
  w: {{rule: independent}}

properties:
  - {{relation: equivariant, axis: n}}

examples:
  - id: one_pixel
    values: {{n: 1, c: 4, h: 1, w: 1, groups: 2}}

oracle: none
""",
}

_MODULES: dict[Kind, str] = {
    "elementwise": '''\
"""{title}: each element as it is."""

from __future__ import annotations

from torch import Tensor

from quantizer.numerics import Parameters
from quantizer.ops import operator


@operator("{name}")
def reference(x: Tensor) -> Tensor:
    """Return the real values of the output."""
    return x.clone()


@operator("{name}")
def quantized(x: Tensor, *, parameters: Parameters) -> Tensor:
    """Return the codes of the output, which shares the parameters of the input."""
    return x.clone()
''',
    "custom": '''\
"""{title}: each element as it is, in groups of channels."""

from __future__ import annotations

from torch import Tensor

from quantizer.numerics import Parameters
from quantizer.ops import operator


@operator("{name}")
def reference(x: Tensor, *, groups: int) -> Tensor:
    """Return the real values of the output."""
    n, c, h, w = x.shape
    return x.reshape(n, groups, c // groups, h, w).reshape(n, c, h, w)


@operator("{name}")
def quantized(x: Tensor, *, parameters: Parameters, groups: int) -> Tensor:
    """Return the codes of the output, which shares the parameters of the input."""
    return x.clone()
''',
}


def write_operator(name: str, kind: Kind, folder: Path, plugins: Path | None) -> tuple[Path, Path, Path | None]:
    """Write the spec and the module of operator *name* and return their paths, and the plugin folder if it is one.

    In a checkout of this repository the module goes to quantizer/ops. SpecError for a name that is taken or not
    snake_case; nothing is written then.
    """
    _check_name(name, folder)
    is_checkout = (folder / "quantizer" / "ops" / "__init__.py").is_file()
    if plugins is None and not is_checkout:
        plugins = folder / "op_plugins"
    spec = folder / "op_specs" / f"{name}.yaml"
    module = (plugins or folder / "quantizer" / "ops") / f"{name}.py"
    title = name.replace("_", " ").capitalize()
    texts = {spec: _SPECS[kind].format(name=name), module: _MODULES[kind].format(name=name, title=title)}
    if not (schema := spec.parent / SCHEMA).exists():
        texts[schema] = schema_text(Spec)
    create_files(texts)
    return spec, module, plugins


def _check_name(name: str, folder: Path) -> None:
    if not re.fullmatch(IDENTIFIER, name) or len(name) > MAX_NAME:
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
