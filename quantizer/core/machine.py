"""machine.json: facts about the machine of a run, apart from its records. No comparison of runs uses them."""

from __future__ import annotations

import json
from typing import Literal

from quantizer.core.case_file import read_model
from quantizer.core.errors import CaseError
from quantizer.core.model import Model


class Machine(Model):
    """The processor, the kernels that libraries chose by it, and figures of float kernels."""

    version: Literal[1] = 1
    processor: str
    """Architecture and instruction sets that determine which kernels run."""
    kernels: dict[str, str] = {}
    """Library -> which of its kernels ran."""
    figures: dict[str, dict[str, float]] = {}
    """Item -> check -> the worst ratio of a check that judges float kernels."""

    def to_json(self) -> str:
        """Return it as JSON with sorted keys."""
        return json.dumps(self.model_dump(), sort_keys=True, indent=1, ensure_ascii=False) + "\n"


def read_machine(text: str, where: str) -> Machine:
    """Read the output of `to_json`; CaseError names the wrong field."""
    try:
        raw = json.loads(text)
    except (ValueError, RecursionError) as err:
        raise CaseError(f"{where}: not JSON: {err}. Run again; pytest writes it.") from None
    return read_model(Machine, raw, where)
