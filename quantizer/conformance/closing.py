"""The end of a run: records, summary and timings written, and the baseline consulted."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from quantizer.conformance.options import Options
from quantizer.core.errors import QuantizerError
from quantizer.core.record import read_records
from quantizer.reporting.gate import FAIL_ON, gate
from quantizer.reporting.store import read_run, write_run, write_timings
from quantizer.reporting.tally import summary_of


def close_run(lines: Sequence[str], seconds: Mapping[str, float], options: Options, *, filtered: bool) -> list[str]:
    """Write records.jsonl, summary.json and timings.jsonl; return what the baseline holds against the run."""
    records = sorted(read_records(lines, "run"), key=lambda record: record.id)
    write_run(options.reports, records, summary_of(records))
    write_timings(options.reports, seconds)
    if options.baseline is None:
        return []
    try:
        base = read_run(options.baseline)
    except QuantizerError as err:
        return [str(err)]
    return gate(base, records, set(FAIL_ON), filtered=filtered or options.narrowed)
