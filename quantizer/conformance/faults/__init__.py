"""A catalogue of faults: small declared changes at a named place, applied through the registry, not by editing code.

The gate is worth as much as the share of these faults that it finds.
"""

from quantizer.conformance.faults.cases import CORPUS, corpus, explicit_cases, gate_cases
from quantizer.conformance.faults.catalogue import catalogue, pairs
from quantizer.conformance.faults.fault import Fault
from quantizer.conformance.faults.kills import Found, Kill, Subject

__all__ = [
    "CORPUS",
    "Fault",
    "Found",
    "Kill",
    "Subject",
    "catalogue",
    "corpus",
    "explicit_cases",
    "gate_cases",
    "pairs",
]
