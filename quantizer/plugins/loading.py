"""Loads a plugin: imports it, collects its registrations, and undoes everything if that fails."""

from __future__ import annotations

import importlib
import importlib.util
import sys
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.machinery import (
    BYTECODE_SUFFIXES,
    EXTENSION_SUFFIXES,
    SOURCE_SUFFIXES,
    ExtensionFileLoader,
    FileFinder,
    SourceFileLoader,
    SourcelessFileLoader,
)
from pathlib import Path
from types import CodeType, ModuleType

from quantizer.core.errors import PluginError
from quantizer.core.wording import shown_path
from quantizer.ops import REGISTRY, load_built_ins
from quantizer.plugins.aipu.modules import answering
from quantizer.plugins.aipu.registration import Contributions, LayerFunction, PluginType, collecting
from quantizer.plugins.classes import CLASSES
from quantizer.plugins.discovery import EntryPointSource, FileSource, Plugin, Source

_LOADED: dict[str, Plugin] = {}
"""Source -> its plugin. Each is loaded once per process."""
LAYERS: list[LayerFunction] = []
"""Layer functions of all loaded plugins, in order of loading. `bridge.connect` gives them to operators."""
_FOLDERS: set[Path] = set()
"""Folders of the plugins' files. Modules in them are compiled from their sources."""


class _FromSource(SourceFileLoader):
    """Compiles a module from its source, whose digest a run records. A compiled file next to it may differ."""

    def get_code(self, _: str) -> CodeType:
        """Return the code of the source file."""
        return self.source_to_code(self.get_data(self.path), self.path)


_LOADERS = (
    (ExtensionFileLoader, EXTENSION_SUFFIXES),
    (_FromSource, SOURCE_SUFFIXES),
    (SourcelessFileLoader, BYTECODE_SUFFIXES),
)


def _finder(path: str) -> FileFinder:
    """Return a finder for modules in a folder of plugins; ImportError for other folders, and for installed packages."""
    place = Path(path)
    ours = "site-packages" not in place.parts and any(place.is_relative_to(folder) for folder in _FOLDERS)
    if not (ours and place.is_dir()):
        raise ImportError(path)
    return FileFinder(path, *_LOADERS)


def _compile_from_source(folder: Path) -> None:
    """Let Python compile the modules of *folder* and below from their sources, also when they are imported later."""
    if folder in _FOLDERS:
        return
    _FOLDERS.add(folder)
    if _finder not in sys.path_hooks:
        sys.path_hooks.insert(0, _finder)
    # Python remembers the finder of each folder: these must ask the new hook
    for known in [path for path in sys.path_importer_cache if Path(path).is_relative_to(folder)]:
        del sys.path_importer_cache[known]


def load(source: Source) -> Plugin:
    """Load one source; PluginError with file, line and exception where it cannot be imported."""
    key = str(source.path) if isinstance(source, FileSource) else f"{source} {source.entry.name} {source.entry.value}"
    if key not in _LOADED:
        load_built_ins()
        _LOADED[key] = _load(source)
    return _LOADED[key]


def _load(source: Source) -> Plugin:
    # by identity, since a plugin may register an equal function again
    before = {id(entry) for entry in REGISTRY.all()}
    with _modules_restored(source), REGISTRY.loading(str(source)), CLASSES.transaction(), collecting() as found:
        module = _import_file(source) if isinstance(source, FileSource) else _import_entry_point(source)
        _check_layers(found)
        for plugin in found.classes:
            CLASSES.add(plugin)
        specs = _spec_folders(module, str(source))
    LAYERS.extend(found.functions)
    added = [entry for entry in REGISTRY.all() if id(entry) not in before]
    versions = {entry.version for entry in added} | {item.version for item in found.functions}
    versions |= {plugin.version for plugin in found.classes}
    return Plugin(
        source.name,
        str(source),
        tuple(".".join(map(str, version)) for version in sorted(versions)),
        tuple(sorted({entry.op for entry in added} | {item.type.name for item in found.functions})),
        tuple(plugin.name for plugin in found.classes if plugin.kind is PluginType.Dataset),
        tuple(plugin.name for plugin in found.classes if plugin.kind is PluginType.Metric),
        specs,
    )


def _check_layers(found: Contributions) -> None:
    """Raise PluginError for two functions of one layer type, kind and version, in this file or another."""
    known = {(item.type, item.kind, item.version): item for item in LAYERS}
    for item in found.functions:
        other = known.setdefault((item.type, item.kind, item.version), item)
        if other is not item:
            raise PluginError(
                f"{shown_path(Path(item.file))}: {item}: {other.function.__name__} of {shown_path(Path(other.file))}"
                " registers the same with the same version. Raise one version."
            )


@contextmanager
def _modules_restored(source: Source) -> Iterator[None]:
    """Remove the plugin's modules from sys.modules if the block raises, so that a second attempt runs them again."""
    before = set(sys.modules)
    try:
        yield
    except BaseException:
        for name in set(sys.modules) - before:
            if _belongs(name, source):
                del sys.modules[name]
        raise


def _belongs(name: str, source: Source) -> bool:
    if isinstance(source, EntryPointSource):
        return name.split(".", maxsplit=1)[0] == source.entry.module.split(".")[0]
    file = getattr(sys.modules[name], "__file__", None)
    return file is not None and Path(file).is_relative_to(source.path.parent)


def _import_entry_point(source: EntryPointSource) -> ModuleType:
    try:
        with answering():
            found = source.entry.load()
    except (Exception, SystemExit) as err:
        where = f"plugin {source} (entry point {source.entry.name!r})"
        raise PluginError(f"{where}: {_foreign_place(err)}{explain(err)}") from err
    return found if isinstance(found, ModuleType) else sys.modules[source.entry.module]


def _import_file(source: FileSource) -> ModuleType:
    """Import a file under its own name, with its folder on sys.path, so that plugins may import each other."""
    path, name = source.path, source.name
    loaded = sys.modules.get(name)
    if loaded is not None and getattr(loaded, "__file__", None) == str(path):
        return loaded
    # another module has this name: both must stay importable
    if loaded is not None:
        name = f"{name}_{len(_LOADED)}"
    folder = str(path.parent.parent if path.name == "__init__.py" else path.parent)
    _compile_from_source(Path(folder))
    spec = importlib.util.spec_from_file_location(name, path, loader=_FromSource(name, str(path)))
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    # only while the file loads, so that its folder hides no module of others
    sys.path.insert(0, folder)
    try:
        with answering():
            spec.loader.exec_module(module)
    except (Exception, SystemExit) as err:
        raise PluginError(f"{place(err, str(path))}: {explain(err)}") from err
    finally:
        sys.path.remove(folder)
    return module


def place(err: BaseException, file: str) -> str:
    """Return `file:line` of the last frame of *file* that *err* passed through, or of a syntax error itself."""
    if isinstance(err, SyntaxError) and err.filename:
        return f"{shown_path(Path(err.filename))}:{err.lineno}"
    lines = [frame.lineno for frame in traceback.extract_tb(err.__traceback__) if frame.filename == file]
    return f"{shown_path(Path(file))}:{lines[-1]}" if lines else shown_path(Path(file))


def _foreign_place(err: BaseException) -> str:
    """Return `file:line: ` of the last frame outside this package and the import machinery, or ""."""
    if isinstance(err, SyntaxError) and err.filename:
        return f"{err.filename}:{err.lineno}: "
    own = str(Path(__file__).parents[1])
    for frame in reversed(traceback.extract_tb(err.__traceback__)):
        if not frame.filename.startswith((own, "<frozen")) and "importlib" not in frame.filename:
            return f"{shown_path(Path(frame.filename))}:{frame.lineno}: "
    return ""


def explain(err: BaseException) -> str:
    """Return the exception's type and text, or only the text of our own errors, which is a sentence."""
    text = str(err).strip()
    if isinstance(err, PluginError) and text:
        return text
    if isinstance(err, SyntaxError):
        text = str(err.msg)
    if isinstance(err, SystemExit):
        text = f"{text} (a plugin must not end the program; raise an exception instead)"
    return f"{type(err).__name__}: {text}" if text else type(err).__name__


def _spec_folders(module: object, origin: str) -> tuple[Path, ...]:
    """Return the folders that a plugin names as SPECS or specs: paths, or resources of importlib.resources."""
    named = getattr(module, "SPECS", None) or getattr(module, "specs", None)
    if named is None:
        return ()
    if isinstance(named, ModuleType):
        named = list(getattr(named, "__path__", ()))
    folders = tuple(Path(str(item)) for item in (named if isinstance(named, list | tuple) else [named]))
    for folder in folders:
        if not folder.is_dir():
            raise PluginError(
                f"plugin {origin}: SPECS names {folder}, which is not a folder. Point it at the YAML specs."
            )
    return folders
