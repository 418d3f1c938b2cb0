"""Does a graph that is to be saved compute what the eager method does?"""

from __future__ import annotations

import functools
import logging
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from hybrid_infer import _engines
from hybrid_infer._errors import EngineError
from hybrid_infer._signature import Signatures
from hybrid_infer._structure import leaf_kinds
from hybrid_infer._subject import Subject
from hybrid_infer._types import Condition, carrier
from hybrid_infer._unsupported import Unsupported
from hybrid_infer._version import Call
from hybrid_infer.checks import _agreement, _halves, _verify
from hybrid_infer.static import _saved_sizes, _static_programs
from hybrid_infer.static._model import Saved
from hybrid_infer.static._saved_stage import (
    OPTIONS,
    Shapes,
    Stage,
    at,
    attempts,
    examples,
    grown,
    open_dims,
    sized,
    together,
)
from hybrid_infer.static._saved_target import Case, values_of

_log = logging.getLogger("hybrid_infer")


def checked(stage: Stage, case: Case, saved: Saved, subject: Subject, numbers: tuple[int, ...]) -> Saved:
    """What is saved, closed to those sizes of 0 and 1 for which its graph is not right.

    Raises Disagreement, EngineError or StaticModelError where the graph does not compute what the method does.
    """
    runner = _Runner(stage, case, saved, subject, numbers)
    dims = open_dims(saved.version)
    example = saved.version.example
    for n, shapes in enumerate(dict.fromkeys([example, grown(example, dims)])):
        if not n or runner.fits(shapes):
            runner.compare(shapes)
    for size in (1, 0):
        for places in together(dims):
            shapes = at(example, places, size)
            if not runner.fits(shapes) or not runner.takes(grown(example, places)):
                continue
            fault = runner.one(shapes) if size else runner.none(shapes)
            if fault:
                _log.debug("%s: its graph is not for %s: %s", stage.target.label, shapes, fault)
                runner.close([["!=", ["dim", *place], size] for place in sorted(places)])
    return replace(saved, version=runner.version)


class _Runner:
    """A version bound to the copy's weights, as far as a comparison needs it."""

    def __init__(self, stage: Stage, case: Case, saved: Saved, subject: Subject, numbers: tuple[int, ...]) -> None:
        self.stage, self.case, self.version, self.numbers = stage, case, saved.version, numbers
        self.model = saved.read
        graph = saved.graph()
        frontend = stage.frontend
        options = _static_programs.engine_options(OPTIONS, frontend)
        reasons = []
        for engine in _engines.engines_for(OPTIONS, "cpu"):
            try:
                arrays = [
                    None if name is None else frontend.exporter(w.dtype, engine.wire(w.dtype))(slots[0].tensor)
                    for name, w, slots in zip(
                        graph.weights, saved.version.weights, subject.census.weights().values(), strict=True
                    )
                ]
                self.program = engine.load(graph, arrays, options)
            except EngineError as fault:
                reasons.append(str(fault))
            else:
                return
        raise EngineError("no engine can run it", "; ".join(reasons))

    def fits(self, shapes: Shapes) -> bool:
        version = self.version
        return version.fits(Call(version.tree, sized(version.tensors, shapes), self.numbers, version.ambient))

    def takes(self, shapes: Shapes) -> bool:
        """Does the method run? Where it does not, sizes that were changed alone are tied to others."""
        return _saved_sizes.fault(self.stage, self.case, shapes) is None

    def close(self, rules: list[Condition]) -> None:
        """From now on the version is valid only where one of the rules holds."""
        rule = rules[0] if len(rules) == 1 else ["or", *rules]
        self.version = replace(self.version, conditions=(*self.version.conditions, rule))

    def compare(self, shapes: Shapes) -> str:
        """Compare with the eager method, where it runs; returns why it does not. Raises Disagreement, EngineError."""
        fault = ""
        for tensors in attempts(self.stage, self.case, shapes):
            try:
                expected = self.stage.eager(values_of(self.case, tensors, self.numbers, self.stage.target))
            except Exception as error:
                lacks = isinstance(error, RuntimeError) and self.stage.frontend.lacks_kernel(error)
                fault = "" if lacks else f"the method fails: {type(error).__name__}: {error}"
                _log.debug("%s: not compared at %s: %s", self.stage.target.label, shapes, error)
                continue
            self._check(tensors, expected)
            return ""
        return fault

    def one(self, shapes: Shapes) -> str:
        """Why the graph is not for sizes of one; empty if it is."""
        try:
            return self.compare(shapes)
        except (EngineError, _verify.Disagreement) as fault:
            return str(fault)

    def none(self, shapes: Shapes) -> str:
        """Why the graph is not for tensors without elements; empty if it is.

        The method is not asked: frameworks have been seen to end the process there.
        """
        try:
            found = self._run(examples(self.stage, self.case, shapes, 1))
        except EngineError as fault:
            return str(fault)
        assert self.version.graph is not None
        for spec, array in zip(self.version.graph.output_specs, found, strict=True):
            if array.size:
                return "a result has elements, and nothing tells whether they are right"
            if len(array.shape) != len(spec.shape) or any(
                n not in (None, m) for n, m in zip(spec.shape, array.shape, strict=True)
            ):
                return f"a result is of shape {array.shape}"
        return ""

    def _run(self, tensors: Sequence[Any]) -> Sequence[Any]:
        import numpy as np

        arrays = [
            self.stage.frontend.exporter(spec.dtype, wire)(tensor)
            for spec, wire, tensor in zip(self.version.tensors, self.program.input_dtypes, tensors, strict=False)
        ]
        own = self.version.ints
        arrays += [np.asarray(n, np.int64) for n, fixed in zip(self.numbers, own, strict=True) if fixed is None]
        found: Sequence[Any] = self.program.run(arrays)
        return found

    def _check(self, tensors: Sequence[Any], expected: Any) -> None:
        import numpy as np

        frontend, version = self.stage.frontend, self.version
        assert version.graph is not None
        try:
            results = Signatures(frontend).results(expected, lambda leaf: type(leaf) is int)
        except Unsupported as fault:
            raise _verify.Disagreement(str(fault)) from fault
        if _agreement.without_ints(results.tree) != _agreement.without_ints(version.results):
            raise _verify.Disagreement("the eager result has another structure than the captured one")
        computed = self._run(tensors)
        left, right, dtypes, numbers, on_gpu = [], [], [], [], False
        kinds = leaf_kinds(version.results)
        origins = [source for source, kind in zip(version.sources, kinds, strict=True) if kind == "t"]
        for (origin, index), tensor in zip(origins, results.tensors, strict=True):
            dtype, _, device = frontend.describe(tensor)
            on_gpu = on_gpu or device != "cpu"
            if origin != "y":
                continue
            own = version.graph.output_specs[index].dtype
            if dtype != own:
                raise _verify.Disagreement(f"a result is {own}, the eager one {dtype}")
            wire = carrier(dtype)
            left.append(frontend.exporter(dtype, wire)(tensor))
            right.append(np.asarray(computed[index]).astype(wire, copy=False))
            dtypes.append(dtype)
            numbers.append(index)
        used = {t.dtype for t in version.tensors} | {w.dtype for w in version.weights}
        floats = not used.isdisjoint(_verify.TOLERANCES)
        try:
            compare = functools.partial(_verify.compare, left, right, dtypes, from_floats=floats)
            _halves.compare(compare, "float32", self.model, numbers, frontend.tf32() if on_gpu else _halves.NONE)
        except _verify.Inconclusive as fault:
            _log.debug("%s: %s", version.method, fault)
