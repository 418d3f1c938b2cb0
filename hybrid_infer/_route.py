"""Where the calls with one signature go: to a program bound to an instance's weights, or to the eager method."""

from __future__ import annotations

import copy
import functools
from collections.abc import Callable, Sequence
from typing import Any, Literal

from hybrid_infer._family import Family, Held
from hybrid_infer._parameters import Parameters
from hybrid_infer._ranges import rows
from hybrid_infer._sight import Sight, used
from hybrid_infer._signature import Signatures
from hybrid_infer._structure import builder, constants, leaf_kinds
from hybrid_infer._subject import Subject
from hybrid_infer._types import Graph, Program, carrier
from hybrid_infer.state import _targets, _written
from hybrid_infer.state._arming import arm

ATTRIBUTE = "an attribute"  # whose name is told by a look-up alone


class Eager:
    """Answers with the eager method, for a reason, as long as `valid` holds.

    ``kind``: which step failed ("copy", "capture", "impure", "writes", "build"), "busy" where nothing did, or "slower"
    where that is the faster way. ``subject``: what `valid` keeps alive, if anything.
    """

    eager: Literal[True] = True

    def __init__(
        self, reason: str, valid: Callable[[], bool], *, remedy: str = "", kind: str = "capture",
        subject: Subject | None = None,
    ) -> None:  # fmt: skip
        self.reason, self.valid, self.remedy, self.kind, self._subject = reason, valid, remedy, kind, subject

    def keeps_former_weights(self) -> bool:
        """Does it keep weights alive that its instance has no longer?"""
        return self._subject is not None and not self._subject.in_place()


class Compiled:
    """A program with everything that a call needs around it. Immutable: a changed weight makes another one."""

    eager: Literal[False] = False

    def __init__(
        self, frontend: Any, subject: Subject, held: Held, family: Family, program: Program, live: bool, graph: Graph,
        sight: Sight,
    ) -> None:  # fmt: skip
        version = held.version
        self.graph = graph
        self.frontend, self.held, self.family, self.program, self.live = frontend, held, family, program, live
        self.built: Any = None  # what it was bound from, a `Built`
        self.weights, kept = sight.weights, sight.kept
        self._places, self._valued = sight.places, sight.valued
        self._loose = [id(tensor) for _, _, tensor in subject.loose_tensors]
        #: Is a written weight seen by the next call, with no new program?
        self.follows = live or bool(getattr(program, "reads_weights", False))
        self._unchanged = sight.held if self.follows else sight.unchanged
        # Constants of the graph, which are fed at no call.
        self._constant = subject.constants_unchanged
        self._attributes = arm(subject.attributes, version.reads, subject.census, sight.watched, forms=True)
        self._code = subject.code_unchanged
        self.key, self.asks = subject.key.hex, subject.asks
        self._usable = program.usable
        self._terms: dict[str, Callable[[], bool]] = {}  # of what else it is valid only while it holds
        self.in_place = in_place = bool(getattr(program, "in_place", False))
        #: Does its plan reach as far as a call? Some are built for ranges of sizes.
        self._reaches: Callable[[Any], bool] | None = getattr(program, "serves", None)
        #: Does it change, or return, objects that the call is given? Then a call has to have as many.
        self.objects = _objects(version.results)
        #: Of such objects, those that no call may be given: the layer or the code would see the change as well.
        self.kept_elsewhere = subject.holds if self.objects else frozenset()
        fed = (*kept, *sight.state)
        self.differentiable = [group[0].tensor for group in fed if frontend.can_require_grad(group[0].tensor)]
        self._fixed = self._weight_arrays(kept) if live and not in_place else []
        #: What a live program that works in place is fed: tensors, which the check of a call vouches for.
        self._fed = [t if name is not None else None for name, t in zip(graph.weights, self.weights, strict=True)]
        wires = program.input_dtypes[-len(graph.inputs) :] if graph.inputs else ()
        self._count = count = len(version.tensors)
        self.state = [sight.weights[i] for i in version.state]
        self._state_at = {i: count + n for n, i in enumerate(version.state)}
        dtypes = [*(spec.dtype for spec in version.tensors), *(version.weights[i].dtype for i in version.state)]
        wires = (*wires[:count], *wires[len(wires) - len(self.state) :])  # without those of integers
        self._exporters = [
            _itself if in_place else frontend.exporter(dtype, wire) for dtype, wire in zip(dtypes, wires, strict=True)
        ]
        self.ints = [i for i, n in enumerate(version.ints) if n is None]
        devices = [t.device for t in version.tensors] or ["cpu"]
        self._importers = [
            _itself if in_place else frontend.importer(spec.dtype, wire, devices[0])
            for spec, wire in zip(graph.output_specs, program.output_dtypes, strict=True)
        ]
        self._sources = version.sources
        targets = _targets.targets(version.results)
        written = {version.sources[place][1] for place in targets if version.sources[place][0] == "x"}
        #: Which it writes to of the tensors that a call works on: those of the call, then `state`.
        self.written = [*sorted(written), *self._state_at.values()]
        self._others = _written.Others(frontend, self._watched(subject)) if self.written else None
        #: Arguments that are results too: ``x.contiguous()`` is `x` or a copy, by the layout that no signature holds.
        origins = [source for place, source in enumerate(version.sources) if place not in targets]
        self.handed_back = sorted({i for origin, i in origins if origin == "x"})
        #: Arguments that require a gradient from then on.
        self.requiring = version.requiring
        #: Does it take tensors alone, of the call, and leave them as they are?
        self.plain = not (
            self.ints or self.handed_back or self.objects or self.state or self.written or self.requiring
        )
        self.stored = _targets.assigned(version.results).keys()  # of what is carried
        self._kinds = leaf_kinds(version.results)
        self._build = builder(version.results, constants(frontend))
        computes_one = version.results == ["t"] and self._sources == (("y", 0),)
        #: Are the results what is computed, in that order?
        self._direct = not self.objects and self._sources == tuple(("y", i) for i in range(len(self._kinds)))
        self._direct = self._direct and "i" not in self._kinds
        self._simple = computes_one and not (live or self.ints or self.requiring)
        self._export = self._exporters[0] if len(self._exporters) == 1 else None
        self.computed = len(graph.outputs)
        #: The scales of the calls for which it was chosen, and the seconds of a call that it saves there, where known.
        self.scales: dict[int, float] = {}
        #: The magnitudes of the sizes at which it was compared with the eager method, or need not be (`_magnitudes`).
        self.magnitudes: set[tuple[int, ...]] = set()
        self.temporary = False
        self.mark: object = None  # of the store: it keeps the entry in use for as long as this lives
        self.tensor_sources = [s for s, k in zip(self._sources, self._kinds, strict=True) if k == "t"]
        self.tensor_outputs = sorted({i for origin, i in self.tensor_sources if origin == "y"})

    def _watched(self, subject: Subject) -> list[Any]:
        weights = [tensor for i, tensor in enumerate(self.weights) if i not in self._state_at]
        return [*weights, *(tensor for _, _, tensor in subject.loose_tensors)]

    def works_on(self, tensors: Sequence[Any]) -> list[Any]:
        """The tensors of a call, and the state of the instance behind them."""
        return [*tensors, *self.state]

    def apart(self, tensors: Sequence[Any]) -> bool:
        """Does each tensor that it writes to lie in memory of its own, so that the write changes nothing else?"""
        return self._others is None or self._others.apart(tensors, self.written)

    def serves(self, call: Any) -> bool:
        """Does its plan reach as far as a call that its version fits?"""
        return self._reaches is None or self._reaches(rows(self.held.version, call))

    def superseded(self) -> bool:
        """Has one of its weights been exchanged for another tensor, in a layer that is where it was?"""
        try:
            return any(box[key] is not tensor for box, key, tensor in self._valued)
        except (KeyError, IndexError):  # a container lost a weight, and may be given it again
            return False

    @property
    def ranged(self) -> bool:
        """Is its plan for a range of sizes?"""
        return self._reaches is not None

    def stand_in(self, while_: Callable[[], bool]) -> None:
        """It is valid no longer than `while_` says."""
        self.temporary = True
        self.only_while("the plan that stood in for its own", while_)

    def valid(self) -> bool:
        """Are the weights, the attributes that were read and the code as they were when this was made?"""
        try:
            return (
                self._unchanged() and self._attributes() and self._code() and (not self._loose or self._constant())
                and self._usable()
            )
        except (KeyError, IndexError):  # a container lost a weight
            return False

    def as_it_was(self) -> bool:
        """Are the attributes that were read, and the code, the very ones of then?"""
        try:
            return self._attributes() and self._code()
        except (KeyError, IndexError):
            return False

    def stamps(self) -> list[tuple[Any, Any]]:
        """The weights that require no gradient, each as it is now: autograd vouches for the others."""
        needs, stamp = self.frontend.requires_grad, self.frontend.stamp
        return [(tensor, stamp(tensor)) for _, _, tensor in self._valued if not needs(tensor)]

    def weights_as_they_were(self, stamps: Sequence[tuple[Any, Any]]) -> bool:
        """Are the weights those of a call for which this was valid? `stamps`: of then, where this `follows` them."""
        try:
            same = self._unchanged() and (not self._loose or self._constant())
            return same and all(self.frontend.stamp(tensor) == before for tensor, before in stamps)
        except (KeyError, IndexError):  # a container lost a weight
            return False

    def watched(self) -> Callable[[], bool]:
        """Tells whether the weights are still the same, as far as is seen, though this may follow what is written."""
        unwritten: Callable[[], bool] = self.frontend.watch(self._valued)

        def unchanged() -> bool:
            try:
                return unwritten()
            except (KeyError, IndexError):  # a container lost a weight
                return False

        return unchanged

    def only_while(self, what: str, holds: Callable[[], bool]) -> None:
        """Let this be valid no longer than something holds, called `what`, that no other part of a call tells."""
        usable = self._usable
        self._usable = lambda: holds() and usable()
        self._terms = {**self._terms, what: holds}

    def broken(self) -> str:
        """What changed since this was made, where `valid` says that something did."""
        if getattr(self.program, "outdated", False):
            return "a weight"
        checks = {ATTRIBUTE: self._attributes, "code": self._code, "a constant tensor": self._constant,
                  "its process": self.program.usable, **self._terms}  # fmt: skip
        try:
            return next((what for what, holds in checks.items() if not holds()), "a weight")
        except (KeyError, IndexError):
            return "a weight"

    def renewed(self, subject: Subject) -> Compiled | None:
        """The same program for an instance whose weights are in place and unchanged; None where they are not."""
        kept, state = used(subject, self.graph, self.held.version.state)
        places = [(s.box, s.key, s.tensor) for group in (*kept, *state) for s in group if s.box is not None]
        if [id(tensor) for _, _, tensor in subject.loose_tensors] != self._loose:
            return None
        try:
            same = [(id(b), k, id(t)) for b, k, t in places] == self._places and self._unchanged() and self._usable()
            same = same and self._constant()
        except (KeyError, IndexError):
            return None
        if not same:
            return None
        route = copy.copy(self)
        try:
            route._build = builder(self.held.version.results, constants(self.frontend))  # of classes as they are now
        except LookupError:
            return None
        watched = {id(tensor) for _, _, tensor in places}
        reads = self.held.version.reads
        route._attributes = arm(subject.attributes, reads, subject.census, watched, forms=True)
        route._code, route.key, route.asks = subject.code_unchanged, subject.key.hex, subject.asks
        route.kept_elsewhere = subject.holds if self.objects else frozenset()
        return route

    def _weight_arrays(self, kept: Sequence[Any]) -> list[Callable[[], Any]]:
        found: list[Callable[[], Any]] = []
        dtypes = {w.name: w.dtype for w in self.held.version.weights}
        for group in kept:
            dtype = dtypes[group[0].name]
            wire = carrier(dtype)
            export, tensor = self.frontend.exporter(dtype, wire), group[0].tensor
            if wire == dtype:
                array = export(tensor)
                found.append(functools.partial(_itself, array))
            else:
                found.append(functools.partial(export, tensor))
        return found

    def run(self, tensors: Sequence[Any], ints: Sequence[int], given: Sequence[Any] = ()) -> Any:
        """Results of one call in the structure of the eager method's, as `Returned` where it changes objects.

        `tensors`: see ``works_on``. What it writes to is not written yet (see ``_given.applied``). Raises EngineError.
        """
        if self._simple:
            if self._export is not None:
                arrays = [self._export(tensors[0])]
            else:
                arrays = [export(tensor) for export, tensor in zip(self._exporters, tensors, strict=True)]
            return self._importers[0](self.program.run(arrays)[0])
        found = self.assemble(self.compute(tensors, ints), tensors, given)
        for i in self.requiring:
            self.frontend.require_grad(tensors[i])
        return found

    def compute(self, tensors: Sequence[Any], ints: Sequence[int]) -> list[Any]:
        """The computed results as tensors, flat."""
        arrays = [export(tensor) for export, tensor in zip(self._exporters, tensors, strict=True)]
        if self.ints:
            import numpy as np

            arrays[self._count : self._count] = [np.asarray(ints[i], dtype=np.int64) for i in self.ints]
        if self.live and self.in_place:
            arrays = self._fed + arrays
        elif self.live:
            fixed = iter(self._fixed)
            arrays = [None if name is None else next(fixed)() for name in self.graph.weights] + arrays
        found = self.program.run(arrays)
        return [bring(array) for bring, array in zip(self._importers, found, strict=True)]

    def assemble(self, computed: Sequence[Any], tensors: Sequence[Any], given: Sequence[Any] = ()) -> Any:
        """Flat computed results to the method's own structure, in which the objects of the call are those `given`."""
        if self._direct:
            return self._build(computed)
        leaves = []
        for (origin, index), kind in zip(self._sources, self._kinds, strict=True):
            if origin == "x":
                leaves.append(tensors[index])
            elif origin == "w":
                place = self._state_at.get(index)
                leaves.append(self.weights[index] if place is None else tensors[place])
            else:
                leaves.append(int(computed[index]) if kind == "i" else computed[index])
        leaves += given
        return self._build(leaves)

    def rebuild_arguments(
        self, values: Sequence[Any], signatures: Signatures, parameters: Parameters
    ) -> Callable[[Sequence[Any]], Any]:
        """A function from other tensors to the values of a call that is otherwise the same."""
        frontend, defaults = self.frontend, parameters.defaults

        def rebuilt(tensors: Sequence[Any]) -> Any:
            layout = signatures.layout(values, parameters.names, defaults)
            return layout.rebuilder(frontend, defaults)(tensors)

        if signatures.lasting(values):  # few calls come to a backward pass
            return rebuilt
        layout = signatures.layout(values, parameters.names, defaults)
        if layout.kinds:  # which are looked up now
            rebuild: Callable[[Sequence[Any]], Any] = layout.rebuilder(frontend, defaults)
            return rebuild
        return lambda tensors: layout.rebuilder(frontend, defaults)(tensors)

    def close(self) -> None:
        self.program.close()


#: A route and ``NOTHING``, or the result of a call that had to be answered meanwhile, with the route if there is one.
Answer = tuple[Compiled | Eager | None, Any]


def _itself(value: Any) -> Any:
    return value


def _objects(node: Any) -> int:
    """Of how many objects of the call a tree of results tells; 0 where it names none of them."""
    if not isinstance(node, list) or not node or node[0] in ("t", "i", "c", "a"):
        return 0
    return node[2] if node[0] == "g" else max(map(_objects, node[-1]), default=0)
