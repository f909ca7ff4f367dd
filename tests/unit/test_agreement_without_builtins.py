"""`engine agreement` for engines without built-in functions: results beyond float32, and incremental updates."""

import itertools

from quantizer.conformance.agreement.measure import Agreement, tied_cases
from quantizer.conformance.agreement.table import Pairing, document
from quantizer.conformance.target import Target
from quantizer.conformance.trials.trial import Trial
from quantizer.core.library import load_library
from quantizer.ops import load_built_ins
from quantizer.runtime.engines.builtin import BuiltinEngine

load_built_ins()
LIBRARY = load_library()


def target(op, platform="float32_any_order", scheme="a8"):
    return Target(LIBRARY.spec(op), LIBRARY.scheme(scheme), LIBRARY.platform(platform))


def test_tied_cases_have_ranges_within_float32():
    made = target("exp")
    for case in itertools.islice(tied_cases(made), 12):
        assert all(abs(end) < 2.0**125 for ends in case.ranges.values() for end in ends)
        assert Trial(made, case, BuiltinEngine()).parameters is not None


def pairing(engine, version, platform="float32_any_order"):
    measured = Agreement(cases=1, elements=8, exact=8)
    return Pairing(engine, version, "avx2", target("relu", platform), measured, measured, ())


def test_the_agreement_document_keeps_unmeasured_engines():
    first = document([pairing("litert:xnnpack", "2.3.0", "xnnpack"), pairing("tract", "0.1")])
    grown = document([pairing("tract", "0.2")], first)
    assert [line for line in grown.splitlines() if line.startswith("## ")] == [
        "## tract 0.2 on platform float32_any_order",
        "## litert:xnnpack 2.3.0 on platform xnnpack",
    ]
    assert grown.count("Processor: ") == 2
    assert document([pairing("tract", "0.2")], grown) == grown
