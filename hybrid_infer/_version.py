"""One static model of a method: for which calls it is valid, what it returns, and the graph. All of it plain data."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from hybrid_infer import _fork_safe, _guards
from hybrid_infer._structure import leaf_kinds
from hybrid_infer._types import Condition, Graph, TensorSpec
from hybrid_infer.state import _targets
from hybrid_infer.state._attributes import Read
from hybrid_infer.state._carry import Carry
from hybrid_infer.state._ran import Ran

#: Raised when the meaning of a field changes; another number is never read.
FORMAT = 2
#: Raised where what earlier traces gave may be wrong: methods are captured anew, while saved models can be read.
TRACES = 21


@dataclass(frozen=True)
class Call:
    """What a version is compared with: the structure, tensors, integers and ambient state of one call."""

    tree: list[Any]
    tensors: tuple[TensorSpec, ...]
    ints: tuple[int, ...]
    ambient: tuple[str, ...]
    places: tuple[str, ...] = ()
    int_places: tuple[str, ...] = ()

    @property
    def shapes(self) -> list[tuple[int, ...]]:
        return [spec.shape for spec in self.tensors]  # type: ignore[misc]


@dataclass(frozen=True)
class Weight:
    """A distinct tensor of the layer: its places, and the element type and sizes that the graph was traced with."""

    name: str
    paths: tuple[str, ...]
    dtype: str
    shape: tuple[int, ...]


@dataclass(frozen=True)
class Version:
    """A captured call; with ``reason``, the record that it cannot be captured or served.

    ``tensors`` hold None for dimensions that vary, ``ints`` None for integers that do. ``example`` are the sizes that
    the call was traced with. ``results`` and ``sources`` give the structure of what the method returns (see ``Twin``).
    """

    method: str
    tree: list[Any]
    tensors: tuple[TensorSpec, ...]
    ints: tuple[int | None, ...]
    ambient: tuple[str, ...]
    weights: tuple[Weight, ...]
    conditions: tuple[Condition, ...] = ()
    reads: tuple[Read, ...] = ()
    results: list[Any] = field(default_factory=list)
    sources: tuple[tuple[str, int], ...] = ()
    example: tuple[tuple[int, ...], ...] = ()
    specialised: frozenset[tuple[int, int]] = frozenset()
    fixed_by: tuple[tuple[int, int, str], ...] = ()  # why, where that is known: tensor, axis, and a line or a reason
    graph: Graph | None = None
    reason: str = ""
    remedy: str = ""
    # What failed, where something did: "copy" (of the layer), "capture", "impure", "writes" (to state), "build"; or
    # "open": no engine serves the graph where what is None in ``tensors`` and ``ints`` varies, so that none varies it;
    # "sides" of what has not failed, but need not be captured again (see `_sides`); "full" of what is None there in a
    # graph that would take the place of none of those that ``scope`` lists, by digests of their identities.
    kind: str = "capture"
    scope: str = ""  # of a step that an engine failed: the engines, machine and tolerances that it is true of
    failed: str = ""  # and the entry of the store that it is about
    carries: tuple[Carry, ...] = ()  # what the method carries from call to call; with a ``reason``, as was found
    ran: Ran | None = None  # of a large program, the code that counts
    requiring: tuple[int, ...] = ()  # the tensors that require a gradient after a call, whatever they did before
    again: int = 0  # of a refusal behind a branch on values: 1, or 2 where captures in a row ended in one (`_one_side`)
    sides: tuple[tuple[str, bool], ...] = ()  # branches on values that it takes one way, in order: lines, ways
    # With a ``reason``, those taken before it was found.
    names: tuple[str, ...] = ()  # what the arguments are called, in the order of ``tree``, for those who read of it

    def similar(self, call: Call, *, ambient: bool = True) -> bool:
        """Is it of the same structure, element types and ranks, whatever the sizes, and of the same `ambient` state?"""
        return (
            self.tree == call.tree
            and (self.ambient == call.ambient or not ambient)
            and len(self.ints) == len(call.ints)
            and [(t.dtype, t.device, len(t.shape)) for t in self.tensors]
            == [(t.dtype, t.device, len(t.shape)) for t in call.tensors]
        )

    def akin(self, other: Version) -> bool:
        """Is another one of such calls, whatever their sizes?"""
        return self.similar(Call(other.tree, other.tensors, (0,) * len(other.ints), other.ambient))

    def fits(self, call: Call) -> bool:
        """Is it valid for the structure, sizes and integers of a call?"""
        if not self.similar(call):
            return False
        if self.reason:
            return self.kind not in ("open", "full") and (bool(self.failed) or self._degenerate_as(call))
        for mine, given in zip(self.tensors, call.tensors, strict=True):
            if any(m is not None and m != g for m, g in zip(mine.shape, given.shape, strict=True)):
                return False
        # Python's integers have no end: int64 has place for what a sum or product of two small ones gives.
        most = 2**31 if None in self.ints and "i" in leaf_kinds(self.results) else 2**63
        for m, g in zip(self.ints, call.ints, strict=True):
            if m != g if m is not None else not -most <= g < most:
                return False
        return not self.broken(call)

    @property
    def degenerate(self) -> bool:
        """Has it failed at a call with a dimension of 0 or 1, so that it says nothing of others?"""
        empty = any(n in (0, 1) for t in self.tensors for n in t.shape)
        return bool(self.reason) and not (self.failed or self.sides) and self.kind != "sides" and empty

    def _degenerate_as(self, call: Call) -> bool:
        """Is a call as empty as the one that failed, where that was? What no engine can do with nothing says little."""
        shapes = zip((t.shape for t in self.tensors), (t.shape for t in call.tensors), strict=True)
        pairs = [pair for mine, given in shapes for pair in zip(mine, given, strict=True)]
        return all(mine == given for mine, given in pairs if mine in (0, 1))

    def broken(self, call: Call) -> list[Condition]:
        """The conditions on sizes and integers that a similar call does not meet."""
        known: dict[int, Any] = {}
        shapes, ints = call.shapes, call.ints
        return [c for c in self._shared_conditions if not _guards.holds(c, shapes, ints, known)]

    @_fork_safe.cached_property
    def _shared_conditions(self) -> list[Condition]:
        """Those of images that are scaled are some 200, of 8,000 parts, of which 400 differ."""
        parts: dict[Any, Any] = {}
        return [_guards.shared(each, parts) for each in self.conditions]

    def varies(self, opens: Collection[tuple[int, int]]) -> bool:
        """Are these (tensor, axis) pairs open, as far as the tracer could leave them so?"""
        if self.reason:
            return True
        return all(self.tensors[i].shape[axis] is None or (i, axis) in self.specialised for i, axis in opens)

    @property
    def open_dims(self) -> frozenset[tuple[int, int]]:
        """The (tensor, axis) pairs that vary."""
        return frozenset((i, a) for i, t in enumerate(self.tensors) for a, n in enumerate(t.shape) if n is None)

    @property
    def open_ints(self) -> frozenset[int]:
        """The integers that vary, by number."""
        return frozenset(i for i, n in enumerate(self.ints) if n is None)

    @_fork_safe.cached_property
    def state(self) -> tuple[int, ...]:
        """Which weights the method writes to (see `_written`): inputs of the graph, behind those of the call."""
        return _targets.state(self.results, self.sources)

    @property
    def width(self) -> int:
        """How many dimensions and integers vary."""
        return len(self.open_dims) + len(self.open_ints)

    def covers(self, other: Version) -> bool:
        """Does it serve whatever another, narrower version serves?"""
        if not other.graph or other.width >= self.width or other.reads != self.reads or other.ran != self.ran:
            return False
        if other.sides != self.sides:
            return False
        example = tuple(TensorSpec(t.dtype, s, t.device) for t, s in zip(other.tensors, other.example, strict=True))
        ints = tuple(n for n in other.ints if n is not None)
        return len(ints) == len(other.ints) and self.fits(Call(other.tree, example, ints, other.ambient))

    def to_meta(self) -> dict[str, Any]:
        """As JSON data, without the graph's bytes."""
        graph = self.graph
        return {
            "format": FORMAT,
            "method": self.method,
            "tree": self.tree,
            "tensors": [_spec(t) for t in self.tensors],
            "ints": list(self.ints),
            "ambient": list(self.ambient),
            "weights": [[w.name, list(w.paths), w.dtype, list(w.shape)] for w in self.weights],
            "conditions": list(self.conditions),
            "reads": [[list(r.path), r.name, r.kind, r.digest] for r in self.reads],
            "results": self.results,
            "sources": [list(s) for s in self.sources],
            "example": [list(s) for s in self.example],
            "specialised": sorted(map(list, self.specialised)),
            "fixed_by": [list(each) for each in self.fixed_by],
            "reason": self.reason,
            "remedy": self.remedy,
            "kind": self.kind,
            "scope": self.scope,
            "failed": self.failed,
            "carries": [[list(c.path), c.entry, c.key, c.read] for c in self.carries],
            "ran": None if self.ran is None else self.ran.to_meta(),
            "requiring": list(self.requiring),
            "again": self.again,
            "taken": [list(each) for each in self.sides],  # as what is on disk names them
            "names": list(self.names),
            "graph": None if graph is None else names_of(graph),
        }

    @staticmethod
    def from_meta(meta: Mapping[str, Any]) -> Version:
        """Raises KeyError, TypeError or ValueError where `meta` is not what ``to_meta`` gives."""
        if meta["format"] != FORMAT:
            raise ValueError(f"format {meta['format']} is not {FORMAT}")
        found = meta["graph"]
        graph = None if found is None else graph_of(found)
        ran = meta.get("ran")
        return Version(
            method=meta["method"],
            tree=meta["tree"],
            tensors=tuple(map(_to_spec, meta["tensors"])),
            ints=tuple(meta["ints"]),
            ambient=tuple(meta["ambient"]),
            weights=tuple(Weight(n, tuple(p), d, tuple(s)) for n, p, d, s in meta["weights"]),
            conditions=tuple(meta["conditions"]),
            reads=tuple(Read(tuple(p), n, k, d) for p, n, k, d in meta["reads"]),
            results=meta["results"],
            sources=tuple((kind, i) for kind, i in meta["sources"]),
            example=tuple(map(tuple, meta["example"])),
            specialised=frozenset((i, a) for i, a in meta["specialised"]),
            fixed_by=tuple((i, a, str(why)) for i, a, why in meta.get("fixed_by", ())),
            graph=graph,
            reason=meta["reason"],
            remedy=meta["remedy"],
            kind=meta["kind"],
            scope=meta["scope"],
            failed=meta["failed"],
            carries=tuple(Carry(tuple(path), entry, key, read) for path, entry, key, read in meta.get("carries", ())),
            ran=None if ran is None else Ran.from_meta(ran),
            requiring=tuple(meta.get("requiring", ())),
            again=int(meta.get("again", 0)),
            sides=tuple((str(place), bool(way)) for place, way in meta.get("taken", ())),
            names=tuple(map(str, meta.get("names", ()))),
        )

    @property
    def identity(self) -> str:
        """All that decides for which calls it is valid, as text; beside the code, which a key tells, or `ran`."""
        specs, reads = [_spec(t) for t in self.tensors], [list(r) for r in self.reads]
        call = [self.tree, *specs, list(self.ints), list(self.ambient)]
        return json.dumps([*call, reads, _plain(self.conditions), self.scope, self.failed, *_plain(self.sides)])


def names_of(graph: Graph) -> dict[str, Any]:
    """All of a graph but its bytes, as JSON data."""
    return {
        "weights": list(graph.weights),
        "inputs": list(graph.inputs),
        "outputs": list(graph.outputs),
        "input_specs": [_spec(s) for s in graph.input_specs],
        "output_specs": [_spec(s) for s in graph.output_specs],
    }


def graph_of(names: Mapping[str, Any], model: bytes = b"") -> Graph:
    """The graph that `names_of` told of."""
    return Graph(
        model,
        tuple(names["weights"]),
        tuple(names["inputs"]),
        tuple(names["outputs"]),
        tuple(map(_to_spec, names["input_specs"])),
        tuple(map(_to_spec, names["output_specs"])),
    )


def _spec(spec: TensorSpec) -> list[Any]:
    return [spec.dtype, list(spec.shape), spec.device]


def _to_spec(data: Sequence[Any]) -> TensorSpec:
    return TensorSpec(data[0], tuple(data[1]), data[2])


def _plain(data: Any) -> Any:
    return [_plain(d) for d in data] if isinstance(data, (list, tuple)) else data
