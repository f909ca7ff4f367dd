"""Reading a cfg file: every field with its place, every error with what to write instead."""

from __future__ import annotations

import difflib
import functools
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from quantizer.core.errors import FormatError, UnsupportedError
from quantizer.core.files import is_file
from quantizer.core.reading import Readable
from quantizer.core.wording import shown_path
from quantizer.optimize.fields import FIELDS, TARGETS, Field, defaults
from quantizer.optimize.per_layer import SYNTAX, PerLayer, parse_per_layer
from quantizer.optimize.values import Value

SECTION = "[Common]"
LARGEST = 1 << 20
CFG = Readable("a cfg file", LARGEST, FormatError, "Name an opt.cfg; its first line is [Common].")
COMMENTS = ("#", ";", "//", ",")
NAMES = ("model_name", "out_ir_name", "quant_ir_name")
"""Fields that become names of files in output_dir."""
FILES = ("graph", "bin", "calibration_data", "data", "label", "opt_config", "statistic_file")
SAMPLES = ("calibration_data", "data")
RECIPE = "RandomDataset"
"""The data set whose samples are generated from a text, such as 8x8x3,count=4,seed=1, and not read from files."""


@dataclass(frozen=True)
class Options:
    """The fields of one run."""

    path: Path
    fields: Mapping[str, Value | PerLayer]
    lines: Mapping[str, int]
    """Field that the file gives -> its line."""
    base: Path
    """Folder of relative paths: the working directory, or the cfg's own folder if the graph exists only there."""
    warnings: tuple[str, ...] = ()

    def __getitem__(self, name: str) -> Value:
        """Return the value of a field; for a per-layer field, the general value."""
        value = self.fields[name]
        return value.general if isinstance(value, PerLayer) else value

    def text(self, name: str) -> str:
        """Return the value of a text field."""
        return str(self[name])

    def number(self, name: str) -> int:
        """Return the value of a whole number."""
        value = self[name]
        assert isinstance(value, int)
        return value

    def per_layer(self, name: str) -> PerLayer:
        """Return the values of a per-layer field."""
        value = self.fields[name]
        return value if isinstance(value, PerLayer) else PerLayer(value)

    def file(self, name: str) -> Path | None:
        """Return the path that a field names; None if it is empty."""
        text = self.text(name)
        return self.base / text if text else None

    @property
    def files(self) -> dict[str, Path]:
        """The files that the run reads, by field; a RECIPE reads no data files."""
        recipes = SAMPLES if self.text("dataset").lower() == RECIPE.lower() else ()
        named = {name: self.file(name) for name in FILES if name not in recipes}
        return {name: path for name, path in named.items() if path is not None}

    def error(self, name: str, text: str) -> FormatError:
        """Return an error with the place of a field."""
        line = f":{self.lines[name]}" if name in self.lines else ""
        return FormatError(f"{shown_path(self.path)}{line}: {name}: {text}")


def read_cfg(path: Path) -> Options:
    """Return the options of a cfg file; FormatError with line and field for the first wrong field."""
    options = parse_cfg(_text(path), path)
    _check(options)
    return options


def parse_cfg(text: str, path: Path) -> Options:
    """Return the options of a cfg's *text*; errors as in `read_cfg`, but files need not exist."""
    given, ignored = _entries(text, path)
    target = _target(given)
    texts = defaults(target)
    fields: dict[str, Value | PerLayer] = {}
    warnings: list[str] = list(ignored)
    for name, field in FIELDS.items():
        # line 0: the file does not have the field
        text, line = given.get(name, (texts[name], 0))
        if name in given and not text:
            text = texts[name]
            if text:
                warnings.append(f"{_place(path, line)}: {name}: empty; its default {text} is taken.")
        fields[name] = _default(name, text) if name not in given else _parsed(field, text, path, line)
        if name in given and text.lower() != texts[name].lower():
            warnings += _not_acted_on(field, fields[name], path, line)
    lines = {name: line for name, (_, line) in given.items()}
    return Options(path, fields, lines, _base(path, given), tuple(warnings))


def _entries(text: str, path: Path) -> tuple[dict[str, tuple[str, int]], list[str]]:
    """Return field -> (text without spaces, line), and a warning for each unknown field, which the original ignores."""
    found: dict[str, tuple[str, int]] = {}
    ignored: list[str] = []
    started = False
    for number, raw in enumerate(text.splitlines(), start=1):
        line = raw.strip()
        if not line or line.startswith(COMMENTS):
            continue
        if not started:
            if line != SECTION:
                raise FormatError(f"{_place(path, number)}: {line[:60]!r}: the first line must be {SECTION}.")
            started = True
            continue
        if line.startswith("[") and line.endswith("]") and "=" not in line:
            raise FormatError(
                f"{_place(path, number)}: {line[:60]}: there is one section, {SECTION}. Remove this line."
            )
        if "\0" in line:
            raise FormatError(f"{_place(path, number)}: {line[:60]!r}: holds a NUL character. Remove it.")
        name, found_sign, value = _split(line)
        if not found_sign:
            raise FormatError(f"{_place(path, number)}: {line[:60]!r}: must be field = value.")
        name = name.strip().lower()
        if name not in FIELDS:
            close = difflib.get_close_matches(name, FIELDS, n=1)
            hint = f"Did you mean {close[0]!r}?" if close else "See `quantizer optimize --field`."
            ignored.append(f"{_place(path, number)}: {name[:60]!r}: no such field, is ignored. {hint}")
            continue
        if name in found:
            raise FormatError(f"{_place(path, number)}: {name}: given on line {found[name][1]} already. Keep one.")
        found[name] = (re.sub(r"\s", "", value), number)
    if not started:
        raise FormatError(f"{shown_path(path)}: is empty: the first line must be {SECTION}.")
    return found, ignored


def _split(line: str) -> tuple[str, str, str]:
    # whichever of = and : comes first separates, as in Python's configparser
    place = min((line.find(sign) for sign in "=:" if sign in line), default=-1)
    return (line[:place], line[place], line[place + 1 :]) if place >= 0 else (line, "", "")


def _text(path: Path) -> str:
    return CFG.text_of(path)


def _place(path: Path, line: int) -> str:
    return f"{shown_path(path)}:{line}" if line else shown_path(path)


def _target(given: Mapping[str, tuple[str, int]]) -> str:
    """Return the target that defaults depend on; a wrong one is refused with its field."""
    field = FIELDS["min_compatible_zhouyi_target"]
    # a target may name a configuration, as in X2_1204; only the generation before _ counts
    text = given.get(field.name, (field.default, 0))[0].split("_")[0].upper() or field.default
    return text if text in TARGETS else field.default


@functools.lru_cache(maxsize=1024)
def _default(name: str, text: str) -> Value | PerLayer:
    """Return the value of a field's default."""
    return _parsed(FIELDS[name], text, Path(), 0)


def _parsed(field: Field, text: str, path: Path, line: int) -> Value | PerLayer:
    where = f"{_place(path, line)}: {field.name}"
    if field.name == "min_compatible_zhouyi_target":
        text = text.split("_", maxsplit=1)[0]
    if not field.per_layer:
        try:
            return field.kind.parse(text)
        except ValueError:
            raise FormatError(
                f"{where}: got {text[:80]!r}: must be {field.kind.legal}. Default: {field.default!r}."
            ) from None
    try:
        return parse_per_layer(text, field.kind)
    except ValueError as err:
        # & separates the general value from values for some layers
        hint = f" For some layers: {SYNTAX}." if "&" in text else f" Default: {field.default!r}."
        raise FormatError(f"{where}: {err}.{hint}") from None


def _not_acted_on(field: Field, value: Value | PerLayer, path: Path, line: int) -> list[str]:
    where = f"{_place(path, line)}: {field.name}"
    if field.status == "refused":
        shown = value.general if isinstance(value, PerLayer) else value
        raise UnsupportedError(
            f"{where}: {shown}: not implemented here, and the IR would differ. docs/compass.md says why."
            " Remove the line."
        )
    return [f"{where}: read, but not acted on."] if field.status == "ignored" else []


def _base(path: Path, given: Mapping[str, tuple[str, int]]) -> Path:
    graph = given.get("graph", ("", 0))[0]
    folder = path.parent
    return folder if graph and not is_file(Path(graph)) and is_file(folder / graph) else Path()


def _check(options: Options) -> None:
    """Raise FormatError if a field that others need is missing, or if a named file does not exist."""
    for name in ("graph", "bin"):
        if not options[name]:
            raise options.error(name, "missing: name the file of the float IR.")
    for name in NAMES:
        if any(sign in options.text(name) for sign in "/\\"):
            rule = "must be a name without / and \\, of files in output_dir. Name the folder as output_dir."
            raise options.error(name, f"{options.text(name)[:80]!r}: {rule}")
    for name, path in options.files.items():
        if not is_file(path):
            raise options.error(name, f"{shown_path(path)}: no such file.")
    if options["metric"]:
        for name in ("dataset", "data"):
            if not options[name]:
                raise options.error("metric", f"a metric needs {name}: name it, or remove metric.")
    if options["calibration_data"] and not options["dataset"]:
        raise options.error("calibration_data", "a data set class reads it: name one as dataset (see --plugin).")
