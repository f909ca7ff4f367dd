"""Tolerances of the Compass Optimizer's own tests."""

from __future__ import annotations

from quantizer.conformance.faults.policies import Policy, cosine

POLICIES: tuple[Policy, ...] = (Policy("cosine 0.99", "Compass Optimizer's own operator test", cosine(0.99)),)
