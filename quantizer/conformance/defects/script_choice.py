"""Chooses the engine and form of a stored case's stand-alone script, and the text about a declared defect."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping
from pathlib import Path

from quantizer.conformance.defects.document import levels_of
from quantizer.conformance.defects.script import Told, repro
from quantizer.conformance.setup.session import Session
from quantizer.conformance.stored.files import Replay, read_replay
from quantizer.conformance.stored.fitting import target_of
from quantizer.conformance.trials.trial import Trial
from quantizer.core.defects import Defect
from quantizer.core.errors import UnsupportedError
from quantizer.core.levels import DEFAULT
from quantizer.core.library import Library
from quantizer.core.platforms import Platform
from quantizer.core.rooms import SHARED_FORMS, Engine, engines, forms, room_of
from quantizer.core.wording import suggestion
from quantizer.runtime.engines.pins import pins_of, variables

TITLE = 110
"""The most characters of a reason that is a script's first line."""


def script_of_defect(session: Session, platform: Platform, defect: Defect) -> str:
    """Return the script of a declared defect on the engine that has it.

    UnsupportedError for a platform without an engine.
    """
    replay = read_replay(stored_case(platform, defect))
    entry = engine_of(platform, defect)
    variant = (
        (defect.engine or "").partition(":")[2] or entry.variant_of_platform.get(platform.platform) or _first(entry)
    )
    reason = " ".join(defect.reason.split())
    title = reason if len(reason) <= TITLE else f"{platform.platform}: {defect.id}"
    said = [*([] if title == reason else [reason]), *facts(session.library, defect, entry, variant)]
    told = Told(
        title,
        tuple(said),
        defect.severity,
        declared=defect.engine is None,
        unstable=defect.unstable,
        environment=environment(defect, entry.name),
    )
    return repro(_trial(session, replay), forms()[entry.form], variant, entry.script, told)


def script_of_case(session: Session, replay: Replay, form: str = "", engine: str = "") -> str:
    """Return the script of any stored case.

    *form*: one of `script_forms`. *engine*: `name` or `name:variant`, as in `--op-engine`. Without both, the engine
    that computes the platform of the case runs it.
    """
    entry, lowering, variant = _chosen(replay.case.platform, form, engine)
    reason = " ".join(replay.reason.split()) or f"{replay.case.op} on {entry.name}: a case that failed"
    title = reason if len(reason) <= TITLE else f"{replay.case.op} on {entry.name}"
    told = Told(title, () if title == reason else (reason,))
    return repro(_trial(session, replay), lowering, variant, entry.script, told)


def find_defect(library: Library, name: str) -> tuple[Platform, Defect]:
    """Return the defect with the name `id` or `platform/id`; UnsupportedError if it is unknown or not unique."""
    place, _, plain = name.rpartition("/")
    known = [(p, d) for p in library.platforms.values() for d in p.defects if place in ("", p.platform)]
    found = [(p, d) for p, d in known if d.id == plain]
    if len(found) == 1:
        return found[0]
    if found:
        choices = ", ".join(f"{p.platform}/{d.id}" for p, d in found)
        raise UnsupportedError(f"--defect={name}: several platforms have it. Name one of {choices}.")
    raise UnsupportedError(f"--defect={name}: no such defect.{suggestion(plain, [d.id for _, d in known], 'Known')}")


def stored_case(platform: Platform, defect: Defect) -> Path:
    """Return the file of the smallest case of a defect."""
    room = room_of(platform.platform)
    return Path(defect.case) if room is None else room.cases / defect.case


def engine_of(platform: Platform, defect: Defect) -> Engine:
    """Return the engine for a script of *defect*: the one that has it, or the one that computes its platform."""
    if defect.engine:
        return _scripted(engines()[defect.engine.partition(":")[0]])
    return _scripted(_home(platform.platform))


def of_root(library: Library, defect: Defect) -> tuple[str, tuple[str, ...]]:
    """Return the cause and upstream addresses of *defect*, or of the first defect with its root if it has none."""
    # a cause is written once, at one of the defects that share it
    alike = [d for p in library.platforms.values() for d in p.defects if d.root and d.root == defect.root]
    said = next((d for d in (defect, *alike) if d.cause), defect).cause
    links = next((d for d in (defect, *alike) if d.upstream), defect).upstream
    return " ".join(said.split()), tuple(links)


def facts(library: Library, defect: Defect, entry: Engine, variant: str) -> list[str]:
    """Return the facts about a defect, one sentence each."""
    cause, upstream = of_root(library, defect)
    who = f"{entry.name} {variant}" if len(entry.variant_of_platform) > 1 else entry.name
    seen = f" Seen in {who} {', '.join(defect.versions)}." if defect.versions else f" Seen in {who}."
    said = [f"Severity: {(defect.severity or 'not stated').replace('_', ' ')}.{seen}"]
    if cause:
        said.append(f"Cause: {cause}.")
    if defect.needs or defect.lacks:
        wanted = [f"with {name}" for name in defect.needs] + [f"without {name}" for name in defect.lacks]
        said.append(f"Kernels that show it: on processors {', '.join(wanted)}.")
    return said + [f"See also {address}" for address in upstream]


def environment(defect: Defect, backend: str) -> Mapping[str, str]:
    """Return the variables that select the kernels with *defect*: a level of `--op-isa`, or a library's limit."""
    if not (defect.needs or defect.lacks) or not pins_of(backend).pins:
        return {}
    if levels := levels_of(defect):
        return variables(backend, DEFAULT if DEFAULT in levels else levels[0])
    found = {}
    # no level of --op-isa shows the defect: a single library is limited by its own variable
    for named in defect.lacks:
        library, _, lacking = named.rpartition(".")
        for pin in (pin for pin in pins_of(backend).pins if pin.library == library):
            wanted = {n.rpartition(".")[2] for n in defect.needs if n.startswith(f"{library}.")}
            values = [v for v, left in pin.leaves.items() if lacking not in left and wanted <= set(left)]
            found[pin.variable] = (
                values[-1].upper() if pin.variable.isupper() and values[-1] != "default" else values[-1]
            )
    return found


def _trial(session: Session, replay: Replay) -> Trial:
    return Trial(target_of(session.library, replay.case, str(replay.path)), replay.case, session.engine)


def _scripted(entry: Engine) -> Engine:
    if not entry.script:
        raise UnsupportedError(f"engine {entry.name}: nothing writes scripts on its own API")
    return entry


def _first(entry: Engine) -> str:
    return next(iter(entry.variant_of_platform.values()), "")


def _home(platform: str) -> Engine:
    """Return the engine whose own platform *platform* is; UnsupportedError if there is none."""
    found = [entry for entry in engines().values() if platform in entry.variant_of_platform and not entry.guest]
    if not found:
        raise UnsupportedError(
            f"platform {platform}: no engine computes it that a script could run. Name one with --op-engine or --form."
        )
    return found[0]


def script_forms() -> tuple[str, ...]:
    """Return the values of `--form`: the families of forms of the engines that write scripts."""
    return tuple(sorted({entry.form.partition("-")[0] for entry in engines().values() if entry.script}))


def _chosen(platform: str, form: str, engine: str) -> tuple[Engine, str, str]:
    """Return the engine, the module that lowers to its form, and its variant."""
    if form and form not in (known := script_forms()):
        raise UnsupportedError(f"--form={form}: no such form.{suggestion(form, known, 'Known')}")
    name, _, variant = engine.partition(":")
    if name and name not in engines():
        raise UnsupportedError(f"--op-engine={engine}: no such name.{suggestion(name, engines(), 'Known')}")
    if name:
        entry = engines()[name]
    elif not form:
        entry = _home(platform)
    else:
        family = [entry for entry in engines().values() if entry.form.partition("-")[0] == form and entry.script]
        entry = next((e for e in family if platform in e.variant_of_platform), family[0])
    if form and entry.form.partition("-")[0] != form:
        raise UnsupportedError(f"--form={form}: engine {entry.name} runs {entry.form}. Leave out one of the two.")
    at_home = platform in entry.variant_of_platform
    shared = next((f for f in SHARED_FORMS if f.partition("-")[0] == entry.form.partition("-")[0]), entry.form)
    # a case of another platform is written in the form that all engines of the family read
    lowering = forms()[entry.form if at_home else shared]
    return _scripted(entry), lowering, variant or entry.variant_of_platform.get(platform) or _first(entry)


def file_name(platform: Platform, defect: Defect) -> str:
    """Return the name of a defect's script."""
    return f"{platform.platform}_{textwrap.shorten(defect.id, 80)}.py"
