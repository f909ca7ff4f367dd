"""The end of a run: records, summary, facts and timings written, and the baseline consulted."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from quantizer.conformance.machine_facts import machine
from quantizer.conformance.options import Options
from quantizer.core.errors import QuantizerError
from quantizer.core.facts import Facts
from quantizer.core.record import read_records
from quantizer.reporting.gate import gate
from quantizer.reporting.machine import paired, split, write_machine
from quantizer.reporting.store import read_run, write_run, write_timings
from quantizer.reporting.tally import summary_of
from quantizer.reporting.thresholds import FACTOR, FAIL_ON


def close_run(
    lines: Sequence[str], seconds: Mapping[str, float], facts: Facts, options: Options, *, filtered: bool
) -> list[str]:
    """Write records.jsonl, summary.json, run.json, machine.json and timings.jsonl; return what the baseline holds against the run."""
    records, figures = split(sorted(read_records(lines, "run"), key=lambda record: record.id))
    here = machine(figures)
    write_machine(options.reports, here)
    write_run(options.reports, records, summary_of(records), facts)
    write_timings(options.reports, seconds)
    if options.baseline is None:
        return []
    try:
        pair = paired(options.baseline, read_run(options.baseline), here, records)
    except QuantizerError as err:
        return [str(err)]
    asked = options.thresholds
    return gate(
        pair.base, pair.run, FAIL_ON if asked.fail_on is None else asked.fail_on,
        factor=FACTOR if asked.factor is None else asked.factor, lsb=math.inf if asked.lsb is None else asked.lsb,
        filtered=filtered or options.narrowed, elsewhere=pair.elsewhere,
    )  # fmt: skip
