"""One case on one engine: everything that checks read, computed on demand and once."""

from __future__ import annotations

import copy
import dataclasses
import math
from collections.abc import Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch
from numpy.typing import NDArray
from torch import Tensor

from quantizer.conformance.grids import decoded, listed
from quantizer.conformance.own_functions import own_parameters
from quantizer.conformance.target import Target
from quantizer.conformance.trials.once import once
from quantizer.conformance.trials.provided import as_torch, copies, lacking, provided_tensors
from quantizer.conformance.trials.ratios import product_ratio, ratios
from quantizer.conformance.trials.reach import has_limited_reach, reach_of
from quantizer.conformance.trials.real_case import RealCase
from quantizer.core.case import Case
from quantizer.core.errors import GraphError, RefusedError
from quantizer.core.platform_settings import CHOICE_NAMES
from quantizer.core.platforms import Platform, computed_activation
from quantizer.core.shapes import channel_axis
from quantizer.core.variants import Variant
from quantizer.core.verdict import Verdict
from quantizer.numerics.activations import LIMITS
from quantizer.numerics.parameters import default_parameters
from quantizer.numerics.qparams import Constant, Parameters, QParams, Staged
from quantizer.numerics.quantize import dequantize
from quantizer.numerics.request import Request
from quantizer.ops import REGISTRY
from quantizer.ops.registry import BUILT_IN
from quantizer.runtime.engines.builtin import BuiltinEngine, target_values
from quantizer.runtime.engines.external import ExternalEngine
from quantizer.runtime.engines.protocol import Asked, Call, Engine
from quantizer.runtime.isolation.placement import ANYHOW, asked_place, placed

Array = NDArray[Any]
FLOAT64_EXACT = 2.0**53
"""float64 holds every integer up to here."""
TILED = "codes of the tiles"
"""The key of the joined results of a case's tiles in the cache that checks share."""


@dataclass(frozen=True)
class Compared:
    """Real results, each with its interval, the right number, and the parts of the interval's width."""

    got: Array
    low: Array
    high: Array
    centre: Array
    vacuous: Array
    """Where the interval says nothing."""
    stages: Array
    """The share of inner roundings in each interval."""
    rest: str
    """The names of the other parts of the intervals."""

    def at(self, box: tuple[slice, ...]) -> Compared:
        """Return the elements in *box*."""
        arrays = {name: values[box] for name, values in self.__dict__.items() if name != "rest"}
        return dataclasses.replace(self, **arrays)


class Trial(RealCase):
    """A case with its data, the provided parameters, and the engine's results; every part is computed on demand."""

    def __init__(self, target: Target, case: Case, engine: Engine) -> None:
        super().__init__(target, case)
        self.engine = engine
        self.shared: dict[str, Array] = {}
        """Results of one check that another check uses, by the name of the first check."""
        self.matches: dict[str, bool] = {}
        """Check -> whether it fails as the built-in functions do, for checks that were queried."""
        self.is_provided = False
        """Whether `parameters` were given to this trial, so that its rule was not asked."""
        self._ran_built_in = False
        """Whether `parameters` are what the built-in rule provides for this very case."""
        self.verdict_on_parameters: Verdict | None = None
        """What the check `parameters` found."""
        self.verdict_of_whole: Verdict | None = None
        """What it found on the stack that this trial is a part of: both have the same provided numbers."""
        self.compared: Compared | None = None
        """What the check `accuracy` compared."""
        self.compared_of_whole: Compared | None = None
        """This part's share of what it compared on the stack: an enclosure holds element by element."""
        self.float_result: Tensor | Exception | None = None
        """What a real engine's float forward gave or raised, where it was asked for together with other cases."""
        self.radii: Mapping[str, Array] = {}
        """The distance of operands from their values, if it differs from the rounding of their codes."""

    def __copy__(self) -> Trial:
        """Return a copy that is judged anew: it will differ in something, so its share of a stack's results is void."""
        other = object.__new__(type(self))
        other.__dict__.update(self.__dict__, compared_of_whole=None)
        return other

    @once
    def parameters(self) -> Parameters:
        """The parameters from the engine's quantize rule."""
        op, places = self.spec.op, self.target.platform.places
        rule = REGISTRY.find(op, "quantize", places)
        own = rule is REGISTRY.built_in(op, "quantize", places) and (rule is None or rule.origin == BUILT_IN)
        self._ran_built_in = own and type(self.engine) is BuiltinEngine
        found = self.engine.quantize(self._request())
        if not isinstance(found, Parameters):
            raise GraphError(f"it returned {type(found).__name__}, must be Parameters. Return what it built.")
        if absent := lacking(self.spec, self.tensors, found):
            raise GraphError(f"it provided nothing for {', '.join(absent)}. Provide the parameters of every tensor.")
        # kept, so that `damaged` can tell whether a forward wrote into them
        if self._ran_built_in:
            self._untouched = found.copied()
            self._provided = provided_tensors(self._untouched)
        else:
            self._provided = copies(provided_tensors(found))
        return found

    def provide(self, parameters: Parameters) -> None:
        """Use these *parameters*, of a trial on other data, instead of calling the rule."""
        self.parameters, self.is_provided = parameters, True
        self._ran_built_in, self.verdict_of_whole, self.compared_of_whole = False, None, None
        self._provided = copies(provided_tensors(parameters))

    def share(self, whole: Trial) -> None:
        """Use the parameters of *whole*, the stack that this trial is a part of."""
        self.parameters, self._provided = whole.parameters, whole._provided
        self.verdict_of_whole = whole.verdict_on_parameters
        if whole._ran_built_in:
            self._ran_built_in, self._untouched = True, whole._untouched
        if "_left_reach" in whole.__dict__:  # the parameters depend on ranges and constants, which all parts share
            self._left_reach = whole._left_reach

    @cached_property
    def built_in(self) -> Parameters | None:
        """The parameters from the built-in rule, or from the spec without a rule; None if the only rule is a plugin's.

        If that rule is under test, it does not run twice: a copy was kept, into which no forward can have written.
        """
        if self._ran_built_in and "parameters" in self.__dict__:
            return self._untouched
        return own_parameters(self._request())

    @cached_property
    def declared(self) -> Parameters:
        """The parameters that the platform's own rule provides for the case.

        If the operator has no rule, the parameters that follow from its spec.
        """
        return self.built_in or default_parameters(self._request())

    def _request(self) -> Request:
        return self.target.request_on(self.case, copies(self.tensors))

    def damaged(self) -> str | None:
        """Return the provided tensor that a forward wrote into, or None."""
        now = provided_tensors(self.parameters)
        return next((name for name, values in self._provided.items() if not torch.equal(values, now[name])), None)

    @cached_property
    def codes(self) -> dict[str, Tensor]:
        """Codes of all operands."""
        return self.target.codes(self.tensors, self.parameters)

    @once
    def outcome(self) -> Staged:
        """The result of the engine's integer forward; it runs on copies, so that damage in place does not spread."""
        return self.run(self.call, self.codes, self.parameters)

    @cached_property
    def unsupported(self) -> str | None:
        """The reason, declared at registration, why a plugin's function does not compute the case, or None."""
        values = {**self.bound, **target_values(self.target.scheme, self.target.platform)}
        values["activation"] = self.case.activation
        return REGISTRY.unsupported(self.spec.op, self.target.platform.places, values)

    @property
    def declined(self) -> str | None:
        """Why the case is not run at all; None if it is."""
        if self.unsupported is not None or (reach := self._left_reach) is None:
            return self.unsupported
        return f"a ratio of scales of 2**{reach} and more: no multiplier of the platform has it"

    @cached_property
    def refusal(self) -> str | None:
        """Why the case does not run: a plugin declares so, or a real engine cannot express it; None if it runs."""
        try:
            if (why := self.declined) is not None:
                return why
            # running the case asks the engine; a refusal is its answer, and no failure
            _ = self.outcome
        except RefusedError as err:
            return str(err)
        except Exception:  # noqa: BLE001 - any other error is a failure of the checks that run it
            return None
        return None

    @cached_property
    def _left_reach(self) -> int | None:
        """The exponent that the case's ratio of scales reaches, if the platform's multipliers end there."""
        if not has_limited_reach(self.target) or self.built_in is None or self.built_in.rescale is None:
            return None
        return reach_of(self.target, self.built_in.rescale)

    @cached_property
    def values(self) -> dict[str, Tensor]:
        """The real value of each operand (x^, w^, b^): codes are dequantized, real operands stay as they are."""
        return {
            name: codes.double() if codes.is_floating_point() else self.real_of(codes, self.qparams(name))
            for name, codes in self.codes.items()
        }

    @staticmethod
    def real_of(codes: Tensor, params: QParams) -> Tensor:
        """Return the real values of codes under *params*."""
        if listed(params) is None:
            return dequantize(codes, params)
        return as_torch(decoded(codes.numpy(), params)) * params.scale

    @cached_property
    def y_hat(self) -> Array:
        """f(x^, w^, b^) in float64, the fused activation included."""
        return self.real(self.values)

    @cached_property
    def variant(self) -> Variant:
        """The requantization variant that the platform declares for the case."""
        return self.target.platform.variant(self.spec.quantization.family, self._choice)

    def _choice(self) -> dict[str, object]:
        """Return the values that the platform's choice of a variant may name."""
        scheme = self.target.scheme
        values = (
            scheme.activation.bits,
            0 if scheme.weight is None else scheme.weight.bits,
            tuple(self.case.shapes),
            tuple(int(params.zero_point) for params in self.parameters.inputs.values()),
            tuple(ratios(self.parameters).values()),
            product_ratio(self.parameters),
        )
        return {**self.bound, **dict(zip(CHOICE_NAMES, values, strict=True))}

    @cached_property
    def centred(self) -> dict[str, Tensor]:
        """Code - zero_point of every operand; for a float format, the value in units of the smallest value; float64."""
        found = {}
        for name, codes in self.codes.items():
            params = self.qparams(name)
            if (form := listed(params)) is not None:
                found[name] = as_torch(decoded(codes.numpy(), params) / form.unit)
                continue
            found[name] = (codes - params.spread(params.zero_point, codes.shape)).double()
        return found

    @cached_property
    def sums(self) -> Array:
        """The reference on centred codes: the exact accumulator of a linear or bilinear operator."""
        return self.reference(self.centred)

    @cached_property
    def sum_magnitudes(self) -> Array:
        """The sum of the magnitudes of the terms of each accumulator."""
        return self.magnitude(self.centred)

    def reaches(self, limit: float) -> bool:
        """Return whether some accumulator's sum of |terms| is at least *limit*.

        Most cases are far below, which the largest operands show without a sum: an operator adds products, and reads
        an element once for one output.
        """
        return self._most_magnitude >= min(limit, FLOAT64_EXACT) and self.sum_magnitudes.max(initial=0.0) >= limit

    @cached_property
    def _most_magnitude(self) -> float:
        """A number that no sum of |terms| exceeds; infinity for operators other than sums of products."""
        if self.spec.error_model.kind != "bilinear" or not all(values.numel() for values in self.centred.values()):
            return math.inf
        largest = {name: _largest(values) for name, values in self.centred.items()}
        biases = {name for name in largest if self.spec.inputs[name].role == "bias"}
        terms = max(values.numel() for values in self.centred.values())
        products = math.prod(most for name, most in largest.items() if name not in biases)
        return terms * products + sum(largest[name] for name in biases)

    def run(self, call: Call, codes: Mapping[str, Tensor], parameters: Parameters) -> Staged:
        """Run the engine's integer forward on copies, so that in-place changes do not reach the judge's operands."""
        return self.run_on(call, copies(codes), parameters)

    def run_on(self, call: Call, codes: Mapping[str, Tensor], parameters: Parameters) -> Staged:
        """Run the engine's integer forward on these tensors themselves; GraphError if it gives no integers."""
        with self.placing():
            staged = self.engine.run(call, codes, parameters)
        if staged.codes.is_floating_point() or staged.codes.dtype == torch.bool:
            raise GraphError(f"the integer forward returned {staged.codes.dtype}: codes are integers. Round them.")
        return Staged(staged.codes.to(torch.int64), staged.stages)

    @cached_property
    def any_order(self) -> bool:
        """Whether a plugin computes the case and may add in float32, in an order that the operands' memory chooses."""
        forward = REGISTRY.find(self.spec.op, "quantized", self.target.platform.places)
        if forward is None or not forward.apart or type(self.engine) is not BuiltinEngine:
            return False
        declared, family = self.target.platform.accumulator, self.spec.quantization.family
        read = family in declared.float32 or self.spec.op in declared.float32_sums
        if self.target.platform.enclosing is not None or (read and self.target.reading == "float32_sums"):
            return True
        return any(rule.holds(self.spec.op, self.bound) for rule in declared.any_order)

    def placing(self) -> AbstractContextManager[None]:
        """Return the context that places a plugin's operands in memory, unless another one is active."""
        return placed(ANYHOW) if self.any_order and not asked_place() else nullcontext()

    def run_float(self, call: Call, tensors: Mapping[str, Tensor]) -> Tensor:
        """Run the engine's float forward on copies."""
        return self.engine.run_float(call, copies(tensors))

    def results(self, several: Iterable[Asked]) -> Iterator[Tensor]:
        """Yield the codes or float results of several runs, which a real engine gets in one message.

        Each run gets these tensors themselves. Our own functions run one after the other, each when its result is read.
        """
        if isinstance(self.engine, ExternalEngine):
            yield from (result() for result in self.engine.run_each([*several]))
            return
        for asked in several:
            if asked.parameters is None:
                yield self.engine.run_float(asked.call, asked.operands)
            else:
                yield self.run_on(asked.call, asked.operands, asked.parameters).codes

    def accumulate(self, call: Call, codes: Mapping[str, Tensor], parameters: Parameters) -> Tensor | None:
        """Return the engine's accumulators of copies, or None if it shows none."""
        return self.engine.accumulate(call, copies(codes), parameters)

    @property
    def output(self) -> QParams:
        """Provided parameters of the output."""
        return self.parameters.outputs["y"]

    @property
    def got(self) -> Array:
        """The output codes, as numpy."""
        result: Array = self.outcome.codes.numpy()
        return result

    def under_platform(self, platform: Platform) -> Trial:
        """Return this trial as if *platform* declared the arithmetic, without running it again."""
        # shallow: the results and the codes stay those of this run
        other = copy.copy(self)
        other.target = dataclasses.replace(self.target, platform=platform)
        # the built-in rule of the other platform has not run
        other._ran_built_in, other.verdict_of_whole = False, None
        return other

    def qparams(self, name: str) -> QParams:
        """Return the provided parameters of operand *name*."""
        constant: Constant | None = self.parameters.constants.get(name)
        return constant.params if constant else self.parameters.inputs[name]

    @property
    def limits(self) -> tuple[float, float]:
        """Smallest and largest real value that the fused activation lets through, as the platform computes it."""
        return LIMITS[computed_activation(self.target.platform, self.case.activation)]

    def per_channel(self, values: Tensor) -> Array:
        """Return per-channel *values* shaped to broadcast against the output."""
        axis = channel_axis(self.spec, self.bound, len(self.output_shape))
        if values.dim() and axis is not None:
            values = values.reshape([-1 if i == axis else 1 for i in range(len(self.output_shape))])
        found: Array = values.numpy()
        return found

    def broadcast(self, name: str, values: Tensor) -> Array:
        """Return per-axis *values* of operand *name* shaped to broadcast against that operand."""
        params = self.qparams(name)
        found: Array = params.spread(values, self.case.shapes[name]).numpy()
        return found


def _largest(values: Tensor) -> float:
    least, greatest = values.aminmax()
    return max(-float(least), float(greatest))
