"""run.json: facts about a run that its records do not hold: versions, specs, selection, declared exceptions.

No clock time.
"""

from __future__ import annotations

import json
from typing import Literal

from quantizer.core.case_file import read_model
from quantizer.core.errors import CaseError
from quantizer.core.model import Model


class SpecFacts(Model):
    """The spec of an operator as it was read."""

    version: str
    path: str
    """Relative to the root of the run; for an installed spec, to the folder of the package."""
    sha256: str
    lines: dict[str, int]
    """Top-level key of the file -> its line, from 1."""
    readings: dict[str, str] = {}
    """Platform -> the reading by which a plugin of the operator is judged there."""
    shipped: bool = False
    """Whether it is a shipped spec outside the root of the run: then `--op-shipped` selects it, and no path does."""
    path_only: bool = False
    """Whether a path on the command line named it, and no option did. `quantizer case` then needs `--op-specs`."""


class PluginFacts(Model):
    """A plugin that the run loaded, and the operators for which it has functions."""

    name: str
    origin: str
    """Name of the distribution, or path of the file relative to the root of the run."""
    version: str = ""
    """The distribution's version; empty for a file."""
    operators: list[str] = []


class FunctionFacts(Model):
    """A function that a plugin registered, and how the run judged it."""

    name: str
    """Operator, kind, platform if it has one, and version, as in `relu.quantized on ideal 2`."""
    origin: str
    """The plugin that registered it."""
    standing: Literal["judged", "unjudged", "shadowed"]
    """judged: it ran in an item with a passed or failed check; shadowed: another version runs in its place
    everywhere."""
    by: str = ""
    """The function that runs in place of a shadowed one; empty otherwise."""


class ExceptionFacts(Model):
    """A failure that is declared: a defect of a platform, or an entry of `--op-xfails`."""

    id: str
    kind: Literal["defect", "xfail"]
    platforms: list[str]
    ops: list[str] = []
    """Empty: every operator."""
    reason: str
    since: str = ""
    """Day of the declaration, YYYY-MM-DD."""
    owner: str = ""
    expires: str = ""
    """Last day on which it holds; empty: for ever."""


class TreeFacts(Model):
    """The checked-out commit."""

    commit: str
    tree: str
    """Git's hash of the files of the commit."""
    date: str
    """The day of the commit as YYYY-MM-DD. Ages are computed at this day."""
    clean: bool
    """Whether all files equal the commit."""


class Facts(Model):
    """The content of run.json, equal for equal runs. Shards of a run differ only in `shard` and the specs they met."""

    version: Literal[1] = 1
    quantizer: str
    python: str
    packages: dict[str, str]
    engine: str
    """Engine under test, with its version where it is a real one."""
    greeting: dict[str, str | bool | list[str]] = {}
    """The greeting of a user's own engine: its name and what it accepts."""
    judged: dict[str, str] = {}
    """Files of plugins and of such an engine -> SHA-256."""
    isa: list[str] = []
    """Instruction-set levels to which a real engine was restricted, or `unpinned`. The level of the processor is in the
    records."""
    profile: str
    seed: int | None = None
    """The seed of generated cases; None: hashes choose (gate), or the seed is not fixed."""
    checks: list[str]
    selection: list[str] = []
    """Options that left items out; empty: every item was requested."""
    left_out: list[str] = []
    """Items of the specs that did not run, for any reason; in a shard, only the shard's items."""
    arguments: str = ""
    """Options that a command must repeat to run an item again."""
    files: dict[str, str]
    """Platform and schemes files -> SHA-256."""
    specs: dict[str, SpecFacts] = {}
    """Operators that occur in the records."""
    plugins: list[PluginFacts] = []
    exceptions: list[ExceptionFacts] = []
    in_process: bool = False
    """Whether functions of plugins ran in the judge's own process (`--op-in-process`). Such a run gets no statement."""
    readings: list[str] = []
    """OPERATOR/PLATFORM:READING for each reading under which a plugin was judged."""
    tree: TreeFacts | None = None
    shard: str = ""
    """`2/3`; empty for a whole run, and for one merged from its shards."""
    functions: list[FunctionFacts] = []
    """Every function of every plugin."""
    items: list[str] = []
    """The items that were collected and not left out: each has a record."""
    exit: int = 0
    """pytest's exit status, before the baseline was consulted; 0 for an empty shard."""
    lacks: list[str] = []
    """Why the run is not whole; empty for a whole run."""
    digests: dict[str, str] = {}
    """File of the run -> SHA-256, so that files of two runs cannot be mixed up."""

    @property
    def under_test(self) -> str:
        """The engine and its instruction-set levels, in the words of the reports."""
        return ", ".join((self.engine, *([f"instructions {' '.join(self.isa)}"] if self.isa else [])))

    def to_json(self) -> str:
        """Return it as JSON with sorted keys: equal facts give equal bytes."""
        return json.dumps(self.model_dump(), sort_keys=True, indent=1, ensure_ascii=False) + "\n"


class UnfinishedError(CaseError):
    """The run has not ended, or was killed; its run.json holds only the reason why it is incomplete."""


def unfinished(reason: str) -> str:
    """Return the content of run.json until the run ends: the *reason* why it is incomplete."""
    return json.dumps({"unfinished": reason, "version": 1}, sort_keys=True) + "\n"


def read_facts(text: str, where: str) -> Facts:
    """Read what `to_json` wrote; CaseError names the field that is wrong, UnfinishedError why the run is not whole."""
    try:
        raw = json.loads(text)
    except (ValueError, RecursionError) as err:
        raise CaseError(f"{where}: not JSON: {err}. Run again; pytest writes it.") from None
    if isinstance(raw, dict) and raw.keys() == {"unfinished", "version"}:
        raise UnfinishedError(f"{where}: {raw['unfinished']}")
    return read_model(Facts, raw, where)
