"""Does a graph that is to be saved compute what the eager method does?"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Any

from hybrid_infer import _compile, _static_call, _verify
from hybrid_infer._errors import EngineError
from hybrid_infer._model import Saved
from hybrid_infer._route import leaf_kinds
from hybrid_infer._saved_stage import OPTIONS, Stage, examples, open_dims, sized
from hybrid_infer._saved_target import Case, values_of
from hybrid_infer._signature import Signatures, Unsupported
from hybrid_infer._subject import Subject
from hybrid_infer._version import Call

_log = logging.getLogger("hybrid_infer")


def compare(stage: Stage, case: Case, saved: Saved, subject: Subject, numbers: tuple[int, ...]) -> None:
    """Raise Disagreement, EngineError or StaticModelError where the graph does not compute what the method does."""
    runner = _Runner(stage, saved, subject)
    dims = open_dims(saved.version)
    example = saved.version.example
    moved = tuple(tuple(n + 1 if (i, a) in dims else n for a, n in enumerate(s)) for i, s in enumerate(example))
    for n, shapes in enumerate(dict.fromkeys([example, moved])):
        call = Call(saved.version.tree, sized(saved.version.tensors, shapes), numbers, saved.version.ambient)
        if n and not saved.version.fits(call):
            continue
        for whole in (1, 0):
            tensors = examples(stage, case, shapes, whole)
            try:
                expected = stage.eager(values_of(case, tensors, numbers, stage.target))
            except Exception as error:
                _log.debug("%s: not compared at %s: %s", stage.target.label, shapes, error)
                continue
            runner.check(tensors, numbers, expected)
            break


class _Runner:
    """A version bound to the copy's weights, as far as a comparison needs it."""

    def __init__(self, stage: Stage, saved: Saved, subject: Subject) -> None:
        self.stage, self.version = stage, saved.version
        graph = saved.graph()
        frontend = stage.frontend
        options = _static_call.engine_options(OPTIONS, frontend)
        reasons = []
        for engine in _compile.engines_for(OPTIONS, "cpu"):
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

    def check(self, tensors: Sequence[Any], numbers: Sequence[int], expected: Any) -> None:
        import numpy as np

        frontend, version = self.stage.frontend, self.version
        assert version.graph is not None
        try:
            results = Signatures(frontend).results(expected, lambda leaf: type(leaf) is int)
        except Unsupported as fault:
            raise _verify.Disagreement(str(fault)) from fault
        if _compile.without_ints(results.tree) != _compile.without_ints(version.results):
            raise _verify.Disagreement("the eager result has another structure than the captured one")
        arrays = [
            frontend.exporter(spec.dtype, wire)(tensor)
            for spec, wire, tensor in zip(version.tensors, self.program.input_dtypes, tensors, strict=False)
        ]
        arrays += [np.asarray(n, np.int64) for n, own in zip(numbers, version.ints, strict=True) if own is None]
        computed = self.program.run(arrays)
        left, right, dtypes = [], [], []
        kinds = leaf_kinds(version.results)
        origins = [source for source, kind in zip(version.sources, kinds, strict=True) if kind == "t"]
        for (origin, index), tensor in zip(origins, results.tensors, strict=True):
            dtype = frontend.describe(tensor)[0]
            if origin != "y":
                continue
            own = version.graph.output_specs[index].dtype
            if dtype != own:
                raise _verify.Disagreement(f"a result is {own}, the eager one {dtype}")
            wire = "float32" if dtype == "bfloat16" else dtype
            left.append(frontend.exporter(dtype, wire)(tensor))
            right.append(np.asarray(computed[index]).astype(wire, copy=False))
            dtypes.append(dtype)
        used = {t.dtype for t in version.tensors} | {w.dtype for w in version.weights}
        floats = not used.isdisjoint(_verify.TOLERANCES)
        try:
            _verify.compare(left, right, dtypes, from_floats=floats, rtol=None, atol=None)
        except _verify.Inconclusive as fault:
            _log.debug("%s: %s", version.method, fault)
