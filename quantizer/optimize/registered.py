"""Data sets and metrics by name: the built-in ones and those of plugins."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from quantizer.core.errors import FormatError, QuantizerError
from quantizer.optimize import datasets, metrics
from quantizer.optimize.cfg import Options
from quantizer.plugins.aipu.registration import ClassPlugin, OptBaseMetric, PluginType
from quantizer.plugins.classes import CLASSES

VERSION = (1,)
ORIGIN = "built-in"


def register_built_ins() -> None:
    """Register the built-in classes once."""
    for kind, classes in ((PluginType.Dataset, datasets.BUILT_IN), (PluginType.Metric, metrics.BUILT_IN)):
        for cls in classes:
            assert isinstance(cls, type)
            known = CLASSES.entries.get((kind, cls.__name__.lower()), [])
            if not any(built_in for _, built_in in known):
                CLASSES.add(ClassPlugin(kind, cls, VERSION, ORIGIN), built_in=True)


def dataset_named(options: Options, data: Path, label: Path | None) -> Any:
    """Return the data set that the cfg names, on *files*; FormatError names the class if its constructor raises."""
    register_built_ins()
    plugin = CLASSES.get(PluginType.Dataset, options.text("dataset"))
    return _made(options, "dataset", plugin, (str(data), str(label)) if label is not None else (str(data),))


def metrics_named(options: Options) -> list[OptBaseMetric]:
    """Return the metrics that the cfg names, with their arguments, reset."""
    register_built_ins()
    asked = options["metric"]
    found = []
    for item in asked if isinstance(asked, tuple) else ():
        assert isinstance(item, tuple)
        name, arguments = item
        metric = _made(options, "metric", CLASSES.get(PluginType.Metric, str(name)), arguments)
        metric.reset()
        found.append(metric)
    return found


def _made(options: Options, field: str, plugin: ClassPlugin, arguments: Any) -> Any:
    try:
        return plugin.cls(*arguments)
    except QuantizerError:
        raise
    except (Exception, SystemExit) as err:
        shown = ", ".join(map(str, arguments))
        raise options.error(field, f"{plugin.name}({shown}) of {plugin.file}: {type(err).__name__}: {err}.") from err


def called(plugin: object, what: str, *arguments: Any) -> Any:
    """Return the result of a metric's method; FormatError with the class if it raises."""
    try:
        return getattr(plugin, what)(*arguments)
    except QuantizerError:
        raise
    except (Exception, SystemExit) as err:
        raise FormatError(f"metric {type(plugin).__name__}: {what} raised {type(err).__name__}: {err}.") from err
