"""Keys of pytest's `config.stash` under which the plugin keeps its state."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from quantizer.conformance.run.state import Run

if TYPE_CHECKING:
    from quantizer.conformance.run.canary import Canary
    from quantizer.conformance.run.collection import ItemState
    from quantizer.conformance.run.inputs import Inputs
    from quantizer.conformance.setup.options import Options
    from quantizer.conformance.setup.session import Session
    from quantizer.plugins.discovery import Plugin
    from quantizer.runtime.engines.child import Child

OPTIONS: pytest.StashKey[Options] = pytest.StashKey()
SESSION: pytest.StashKey[Session] = pytest.StashKey()
STATE: pytest.StashKey[ItemState] = pytest.StashKey()
EXTRA: pytest.StashKey[list[Path]] = pytest.StashKey()
PLUGINS: pytest.StashKey[list[Plugin]] = pytest.StashKey()
RUN: pytest.StashKey[Run] = pytest.StashKey()
INPUTS: pytest.StashKey[Inputs] = pytest.StashKey()
MADE: pytest.StashKey[set[str]] = pytest.StashKey()
HOST: pytest.StashKey[Child] = pytest.StashKey()
CANARY: pytest.StashKey[Canary] = pytest.StashKey()
