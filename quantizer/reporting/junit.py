"""A run as JUnit XML, from its records: no times, so that shards merge to the bytes of one run."""

from __future__ import annotations

from collections.abc import Iterable
from xml.etree import ElementTree as ET

from quantizer.core.facts import Facts
from quantizer.core.record import Record
from quantizer.core.wording import visible
from quantizer.reporting.figures import printable
from quantizer.reporting.items import rerun, spec_path
from quantizer.reporting.markdown import failing_text
from quantizer.reporting.tally import standing, worst_ratio


def render(records: Iterable[Record], facts: Facts | None = None) -> str:
    """Return the XML: a test case for each item, with op, scheme, platform, worst ratio and the rerun command."""
    everything = sorted(records, key=lambda record: record.id)
    how = [standing(record) for record in everything]
    counts = {"tests": len(how), "failures": how.count("failed"), "errors": 0}
    # JUnit has no known failures
    counts["skipped"] = how.count("known") + how.count("skipped")
    root = ET.Element("testsuites")
    suite = ET.SubElement(root, "testsuite", {"name": "quantizer"} | {key: str(n) for key, n in counts.items()})
    if facts is not None:
        said = {
            "quantizer": facts.quantizer,
            "engine": facts.under_test,
            "profile": facts.profile,
            "python": facts.python,
        }
        _properties(suite, said | facts.packages)
    for record in everything:
        _case(suite, record, facts)
    ET.indent(root)
    return '<?xml version="1.0" encoding="utf-8"?>\n' + visible(ET.tostring(root, encoding="unicode")) + "\n"


def _case(suite: ET.Element, record: Record, facts: Facts | None) -> None:
    case = ET.SubElement(suite, "testcase", {"classname": spec_path(record, facts), "name": printable(record.id)})
    said = {"op": record.op, "scheme": record.scheme, "platform": record.platform, "cases": str(record.cases or "")}
    ratios = [worst_ratio(check) for check in record.checks.values()]
    said |= {"ratio": f"{max(ratios):.6g}" if ratios else "", "rerun": rerun(record, facts)}
    _properties(case, {name: text for name, text in said.items() if text})
    how = standing(record)
    if how == "failed":
        failure = ET.SubElement(case, "failure", {"message": printable(record.failure or record.outcome)})
        failure.text = "\n".join(filter(None, (failing_text(record), printable(record.failure), said["rerun"])))
    elif how != "passed":
        kind = "pytest.xfail" if how == "known" else "pytest.skip"
        ET.SubElement(case, "skipped", {"type": kind, "message": printable(record.failure or record.outcome)})


def _properties(parent: ET.Element, said: dict[str, str]) -> None:
    properties = ET.SubElement(parent, "properties")
    for name, value in said.items():
        ET.SubElement(properties, "property", {"name": name, "value": printable(value)})
