"""Datasets, metrics and configuration hooks by name; the highest version wins."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from quantizer.core.errors import PluginError, UnsupportedError
from quantizer.core.wording import suggestion
from quantizer.plugins.aipu.registration import ClassPlugin, PluginType


@dataclass
class Classes:
    """Class plugins by kind and name. Names are case-insensitive, as in Compass."""

    entries: dict[tuple[PluginType, str], list[tuple[ClassPlugin, bool]]] = field(default_factory=dict)
    """(kind, name) -> (plugin, whether it is built in), in ascending order of versions. The last one is used."""

    def add(self, plugin: ClassPlugin, *, built_in: bool = False) -> None:
        """Add one class. A plugin replaces a built-in of the same version; two plugins of one version are an error."""
        known = self.entries.setdefault((plugin.kind, plugin.name.lower()), [])
        for other, is_built_in in known:
            if other.version == plugin.version and is_built_in == built_in:
                version = ".".join(map(str, plugin.version))
                raise PluginError(
                    f"{plugin.kind.value} {plugin.name} {version} ({plugin.file}): {other.file} registers"
                    f" {other.name} with the same version. Raise one version."
                )
        known.append((plugin, built_in))
        # False sorts first: a built-in stands before a plugin of its version, and the last entry is used
        known.sort(key=lambda entry: (entry[0].version, not entry[1]))

    def get(self, kind: PluginType, name: str) -> ClassPlugin:
        """Return the class called *name*; UnsupportedError with the nearest name if there is none."""
        known = self.entries.get((kind, name.lower()))
        if not known:
            names = self.names(kind)
            raise UnsupportedError(f"{kind.value} {name!r}: no such {kind.value}.{suggestion(name, names, 'Known')}")
        return known[-1][0]

    def names(self, kind: PluginType) -> list[str]:
        """Return the names of all classes of one kind in their authors' spelling, sorted."""
        return sorted(known[-1][0].name for (of, _), known in self.entries.items() if of is kind and known)

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """Undo the block's additions if it raises."""
        before = {key: list(known) for key, known in self.entries.items()}
        try:
            yield
        except BaseException:
            self.entries = before
            raise


CLASSES = Classes()
