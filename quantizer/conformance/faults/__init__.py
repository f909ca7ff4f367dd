"""A catalogue of faults: small declared changes at a named place, applied through the registry, never by editing code.

What the gate is worth is what it kills of these.
"""

from quantizer.conformance.faults.catalogue import ALL, CATALOGUE, Fault
from quantizer.conformance.faults.kills import Kill, applied, gate_cases, kill

__all__ = ["ALL", "CATALOGUE", "Fault", "Kill", "applied", "gate_cases", "kill"]
