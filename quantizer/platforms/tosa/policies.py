"""Tolerances of the tests of ExecuTorch's TOSA backend."""

from __future__ import annotations

from quantizer.conformance.faults.policies import Policy, frobenius, within_codes

POLICIES: tuple[Policy, ...] = (
    Policy("1 LSB", "ExecuTorch Arm tester, INT: qtol=1 beside atol 1e-3", within_codes(1, 1e-3), in_codes=True),
    Policy("Frobenius 0.15 cosine 0.9", "ExecuTorch Arm tester, profiled tolerance", frobenius(0.15, 0.9)),
)
