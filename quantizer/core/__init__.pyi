from .case import Case, DataRecipe, TilePlan
from .errors import (
    CaseError,
    ConstraintError,
    EngineError,
    FixError,
    FormatError,
    FunctionError,
    GraphError,
    PluginError,
    QuantizerError,
    RefusedError,
    SpecError,
    UnsupportedError,
)
from .library import Library, load_library, load_spec, shipped_folder
from .platforms import Platform
from .record import CheckRecord, Record
from .rooms import Engine, Oracle, Room
from .schemes import Scheme
from .spec import Spec
from .verdict import Verdict, Worst

__all__ = [
    "Case",
    "CaseError",
    "CheckRecord",
    "ConstraintError",
    "DataRecipe",
    "Engine",
    "EngineError",
    "FixError",
    "FormatError",
    "FunctionError",
    "GraphError",
    "Library",
    "Oracle",
    "Platform",
    "PluginError",
    "QuantizerError",
    "Record",
    "RefusedError",
    "Room",
    "Scheme",
    "Spec",
    "SpecError",
    "TilePlan",
    "UnsupportedError",
    "Verdict",
    "Worst",
    "load_library",
    "load_spec",
    "shipped_folder",
]
