"""Tolerances of ExecuTorch's own tests."""

from __future__ import annotations

from quantizer.conformance.faults.policies import Policy, close

POLICIES: tuple[Policy, ...] = (
    Policy("atol 0.1 rtol 0.04", "ExecuTorch backend suite, every operator (runner.py)", close(1e-1, 4e-2)),
)
