"""Whether an operator is complete: functions, signatures, a tile rule, an oracle for a new one."""

from __future__ import annotations

from quantizer.conformance.generation.builder import build_case
from quantizer.conformance.generation.choosers import HashChooser
from quantizer.conformance.generation.hashing import key
from quantizer.conformance.session import Session
from quantizer.conformance.trial import Trial
from quantizer.core.errors import QuantizerError
from quantizer.core.spec import Spec
from quantizer.ops import BUILT_IN, REGISTRY


def spec_problems(session: Session, spec: Spec) -> list[str]:
    """Return what keeps *spec* from being supported, each with the next step."""
    path = session.library.paths[spec.op]
    reference = REGISTRY.find(spec.op, "reference")
    if reference is None:
        return [
            f"no module registers a reference. Write @operator({spec.op!r}) def reference(...), or name its plugin."
        ]
    problems = []
    if not any(REGISTRY.find(spec.op, "quantized", name) for name in (None, *session.library.platforms)):
        problems.append(f"no quantized function. Write @operator({spec.op!r}) def quantized(..., *, parameters).")
    if REGISTRY.built_in(spec.op, "reference") is reference and reference.origin != BUILT_IN and spec.oracle is None:
        problems.append(
            f"{path.name}: self-referenced: the operator's own reference judges it. Name an oracle, such as "
            "`oracle: torch.nn.functional.relu`, or `oracle: none` with the reason in the summary."
        )
    if not session.all_targets(spec):
        return [*problems, "no platform and scheme apply. Check `excludes` and the platforms' `schemes` and `ops`."]
    return problems + _first_case_problems(session, spec)


def _first_case_problems(session: Session, spec: Spec) -> list[str]:
    target = session.all_targets(spec)[0]
    try:
        trial = Trial(target, build_case(target, HashChooser(key(0, spec.op), {})), session.engine)
        if trial.y.shape != trial.output_shape:
            return [
                f"the reference gives shape {list(trial.y.shape)}, the spec's shape rule {list(trial.output_shape)}."
            ]
    except QuantizerError as err:
        return [f"the first generated case cannot be built: {err}"]
    except Exception as err:  # noqa: BLE001 - whatever a plugin's reference raises is its failure
        return [f"the reference raised {type(err).__name__}: {err}"]
    return []
