"""A conformance statement as markdown, for people to sign and file."""

from __future__ import annotations

from quantizer.core.wording import visible
from quantizer.reporting.figures import NOTHING, count_text, counted, printable, ratio_text
from quantizer.reporting.statement import OperatorStatement, Statement
from quantizer.reporting.tables import MAX_BYTES, Column, Section, capped


def render(statement: Statement, *, max_bytes: int = MAX_BYTES) -> str:
    """Return the statement. If it is longer than *max_bytes*, a line says which tables were cut."""
    counts = statement.counts
    head = [
        "# Conformance statement",
        "",
        f"**{statement.result.capitalize()}.** {counted(counts['items'], 'item')}: {counts['passed']:,} passed, "
        f"{counts['failed']:,} failed, "
        f"{counts['known']:,} known failures{_excused(counts.get('excused', 0))}, {counts['skipped']:,} skipped; "
        f"{counted(len(statement.operators), 'operator')}, {counted(counts['targets'], 'target')}, "
        f"{counted(counts['cases'], 'case')}{_refused(counts.get('refused', 0))}, "
        f"{counted(counts['verdicts'], 'verdict')}, "
        f"{counted(counts['elements'], 'element')} judged.",
        "",
        *(f"* {printable(line)}" for line in _versions(statement)),
    ]
    # what the statement does not cover comes first
    sections = [_gaps(statement), _exceptions(statement), _operators(statement), _checks(statement), _files(statement)]
    return visible(capped(head, sections, max_bytes))


def _refused(cases: int) -> str:
    """Return how many cases the engine or a plugin does not compute. The statement does not cover them."""
    return f" ({cases:,} of them refused or unsupported, and not judged)" if cases else ""


def _excused(items: int) -> str:
    """Return in how many items a known failure leaves no case of a check that passes."""
    return f" (of {counted(items, 'item')} a check has no case that passes)" if items else ""


def _versions(statement: Statement) -> list[str]:
    packages = ", ".join(f"{name} {version}" for name, version in statement.packages.items())
    seed = f", seed {statement.seed}" if statement.seed is not None else ""
    lines = [
        f"quantizer {statement.quantizer}, profile {statement.profile}{seed}; engine {statement.engine}",
        f"Python {statement.python}, {packages}",
    ]
    lines += [f"plugin {p.name} of {p.origin} {p.version}".rstrip() for p in statement.plugins]
    if statement.tree:
        changed = "" if statement.tree.clean else ", with changes that no commit holds"
        lines.append(f"commit {statement.tree.commit} of {statement.tree.date}, tree {statement.tree.tree}{changed}")
    return [*lines, f"records.jsonl: SHA-256 {statement.records_sha256}"]


def _gaps(statement: Statement) -> Section:
    columns = (
        Column("what", code=True),
        Column("reason", code=True),
        Column("items", right=True),
        Column("for example", code=True),
    )
    rows = tuple((h.what, h.reason, count_text(len(h.items)), next(iter(h.items), NOTHING)) for h in statement.gaps)
    return Section("Not checked", columns, rows, note="What this statement does not cover.")


def _exceptions(statement: Statement) -> Section:
    columns = (
        Column("exception", code=True),
        Column("platform", code=True),
        Column("owner", code=True),
        Column("expires"),
        Column("items", right=True),
        Column("reason", code=True),
    )
    rows = tuple(
        (
            met.declared.id,
            met.platform,
            met.declared.owner or NOTHING,
            met.declared.expires or NOTHING,
            f"{len(met.items):,}",
            met.declared.reason,
        )
        for met in statement.exceptions
    )
    return Section("Declared exceptions met", columns, rows)


def _operators(statement: Statement) -> Section:
    columns = (
        Column("operator", code=True),
        Column("version"),
        Column("result"),
        Column("targets", right=True),
        Column("cases", right=True),
        Column("elements", right=True),
        Column("worst ratio", right=True),
        Column("platforms and schemes", code=True),
        Column("spec (SHA-256)", code=True),
    )
    return Section("Tested", columns, tuple(_operator(one) for one in statement.operators))


def _operator(one: OperatorStatement) -> tuple[str, ...]:
    results = [*(target.result for target in one.targets), *one.items.values()]
    platforms: dict[str, list[str]] = {}
    for target in one.targets:
        failed = "" if target.result == "passed" else f" ({target.result})"
        platforms.setdefault(target.platform, []).append(target.scheme + failed)
    ratios = [float(target.worst_ratio) for target in one.targets]
    return (
        one.op,
        one.version,
        next((word for word in ("failed", "known", "skipped") if word in results), "passed"),
        f"{len(one.targets):,}",
        f"{sum(t.cases for t in one.targets):,}",
        f"{sum(t.elements for t in one.targets):,}",
        ratio_text(max(ratios)) if ratios else NOTHING,
        "; ".join(f"{name}: {' '.join(schemes)}" for name, schemes in platforms.items()),
        f"{one.spec} {one.sha256[:16]}",
    )


def _checks(statement: Statement) -> Section:
    names = ("passed", "failed", "mistrusted", "overflow", "defects", "inconclusive", "elements", "vacuous")
    columns = (Column("check", code=True), *(Column(name, right=True) for name in names))
    rows = tuple((name, *(count_text(getattr(check, n)) for n in names)) for name, check in statement.checks.items())
    return Section("Checks", columns, rows, note="Verdicts by status, and the elements that they judged.")


def _files(statement: Statement) -> Section:
    columns = (Column("file", code=True), Column("SHA-256", code=True))
    return Section("Schemes and platforms", columns, tuple(sorted(statement.files.items())))
