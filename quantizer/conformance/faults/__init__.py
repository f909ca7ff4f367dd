"""A catalogue of faults: small declared changes at a named place, applied through the registry, never by editing code.

What the gate is worth is what it kills of these.
"""

from quantizer.conformance.faults.catalogue import CATALOGUE, Fault, pairs
from quantizer.conformance.faults.kills import Kill, applied, explicit_cases, gate_cases, has_effect, kill

__all__ = ["CATALOGUE", "Fault", "Kill", "applied", "explicit_cases", "gate_cases", "has_effect", "kill", "pairs"]
