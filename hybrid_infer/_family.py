"""The versions of one method key in this process, shared by every instance that has that key."""

from __future__ import annotations

import logging
import weakref
from collections import Counter
from collections.abc import Callable, Collection, Hashable, Iterator, Mapping
from dataclasses import replace
from typing import Any, NamedTuple

from hybrid_infer import _fork_safe
from hybrid_infer._backwards import Backwards
from hybrid_infer._ledger import Ledger
from hybrid_infer._ranges import Ranges
from hybrid_infer._request import Wish
from hybrid_infer._subject import Subject
from hybrid_infer._types import Graph
from hybrid_infer._version import Call, Version
from hybrid_infer.state import _environment
from hybrid_infer.state._attributes import Read
from hybrid_infer.state._ran_eagerly import NOTHING_ELSE

_log = logging.getLogger("hybrid_infer")

GRAPH = "graph.onnx"


class Prepared(NamedTuple):
    """What an engine made of a version: the graph that it was given, without its bytes, and the files of its plan."""

    graph: Graph
    files: Mapping[str, bytes]


class Held:
    """A version, the store's entry that it came from (None: not on disk) and what engines have made of its graph."""

    def __init__(self, version: Version, entry: Any, *, disk: bool) -> None:
        self.version, self.entry, self.disk = version, entry, disk
        self.origin = "disk" if disk else "captured"  # `disk` ends where it was counted
        self.unpublished: Graph | None = None  # with its bytes, while neither `version` nor the store has them
        self.ledger = Ledger()
        self.plans: dict[str, Prepared] = {}
        self.stored: set[str] = set()  # of these, the ones that are on disk
        self.verified: set[str] = set()  # by `_verified.name`
        self.compared: Counter[str] = Counter()  # of a plan, how often that was done in this process
        self.unproven: set[str] = set()  # the same, of plans that are used although no comparison told anything
        self.ties: Counter[str] = Counter()  # the same: comparisons that told nothing
        self.unfit: Counter[str] = Counter()  # the same: calls that it refused for their values
        self.moves: Counter[str] = Counter()  # the same: comparisons in a row that a changed weight spoiled
        self.refused: dict[str, str] = {}  # why an engine is not used, by `_verified.scope` of its plan
        self.told: set[str] = set()  # of these, the ones that are on disk
        self.postponed: dict[str, Any] = {}  # what failed for a cause that passes, likewise; on no disk
        #: Eager routes of calls that a plan did not answer as the eager method does, though it is right at other sizes:
        #: by the kind of the program, and the magnitudes of their sizes.
        self.resting: dict[tuple[str, tuple[int, ...]], Any] = {}
        #: Which results carry a gradient, by which arguments and weights require one.
        self.carried: dict[tuple[tuple[bool, ...], tuple[bool, ...]], tuple[bool, ...]] = {}
        #: Arguments that are results too, by number: do they come back as they are where they have gaps in memory?
        self.with_gaps: dict[int, bool] = {}
        #: Of what is true of one side of a branch alone (see `_one_side`): how often it answered all calls for a while,
        #: and is that not over?
        self.pauses: dict[int, tuple[int, Callable[[], bool]]] = {}
        self.found_by: Callable[[], Any] = lambda: None  # the `State` for which that was found, where it is in use
        self.ranges = Ranges()
        self.choices: dict[str, Any] = {}  # of a `Choice`, by what it was made among
        self.contests: dict[Hashable, Any] = {}  # of a `Contest`, by engine and signature
        self.backwards = Backwards()  # through results of an engine that was chosen by measurement
        self.doubtful: Counter[str] = Counter()  # of those, how often one was made on a busy machine

    def refuse(self, among: str, reason: str) -> None:
        """Take over from disk why engines (a `_verified.scope`) are not used."""
        self.refused.setdefault(among, reason)
        self.told.add(among)

    def untold(self) -> Iterator[tuple[str, str]]:
        """Scopes and reasons that are not on disk yet, each given once: it is put there now."""
        for among in self.refused.keys() - self.told:
            self.told.add(among)
            yield among, self.refused[among]

    def forget_untold(self) -> None:
        """Take back what is not on disk yet of why engines are not used."""
        self.refused = {among: reason for among, reason in self.refused.items() if among in self.told}

    def graph(self) -> Graph:
        """The graph with its bytes; they are read from the store when an engine needs them. Raises DamagedEntry."""
        graph = self.unpublished or self.version.graph
        assert graph is not None
        return graph if graph.model else replace(graph, model=self.entry.read(GRAPH))

    def hold(self) -> object:
        """Something that keeps the entry in use, and so safe from eviction, for as long as it lives."""
        from hybrid_infer.cache import DamagedEntry

        if self.entry is None:
            return None
        try:
            return self.entry.hold()
        except DamagedEntry as fault:  # it is gone, and the program that was built from it needs it no longer
            _log.debug("%s", fault)
            return None


class Family:
    """Versions by method key; ``lock`` guards the list, never a capture."""

    def __init__(self, store: Any, key: str) -> None:
        self.store, self.key = store, key  # kept, so that no other store in memory gets this one's id
        self.lock = _fork_safe.Lock()
        self.held: list[Held] = []
        self.patient = True  # False once a call has waited in vain: the next ones do not wait again
        self.eagerly = NOTHING_ELSE  # of a large program
        self._known: set[str] = set()

    def find(
        self, call: Call, subject: Subject, scope: Callable[[], str], opens: Collection[tuple[int, int]] = (),
        but: Callable[[Held], bool] | None = None,
    ) -> Held | None:  # fmt: skip
        """The widest version that is valid for a call on an instance, a remembered failure last.

        But first what failed at sizes of 0 or 1 that the call has too: a wider graph was never compared there.

        `opens` are (tensor, axis) pairs that it has to leave open as far as they can be. `scope` says what is asked of
        which engines: a failure of others says nothing about these. That dimensions are not to vary answers nothing but
        who asks for them. Versions are passed over of which `but` is true.
        """
        with self.lock:
            candidates = sorted(self.held, key=_order)
        records = [h.version for h in candidates if h.version.failed]
        failed = {record.failed for record in records if record.scope == scope()}
        for held in candidates:
            version = held.version
            if held.entry is not None and held.entry.version in failed:
                continue
            if version.kind == "sides" or (but is not None and but(held)):
                continue
            if version.again and not held.pauses:  # not to be believed yet (see `_one_side`)
                continue
            asks = version.kind == "open" and not version.open_dims.isdisjoint(opens) and version.similar(call)
            serves = (asks or version.fits(call)) and version.varies(opens) and self.suits(version, subject)
            if serves and (not version.scope or version.scope == scope()):
                return held
        return None

    def fitting(self, call: Call, subject: Subject) -> list[Held]:
        """Versions with a graph that are valid for a call on an instance."""
        with self.lock:
            held = list(self.held)
        return [h for h in held if h.version.graph and h.version.fits(call) and self.suits(h.version, subject)]

    def complete(self, call: Call, subject: Subject) -> bool:
        """Do versions of such sizes hold all the sides of branches on values that calls take?"""
        with self.lock:
            records = [h.version for h in self.held if h.version.kind == "sides"]
        return any(v.tensors == call.tensors and v.fits(call) and self.suits(v, subject) for v in records)

    def barred(self, call: Call) -> bool:
        """Has a call with these sizes of 0 or 1 failed, so that no version for others may answer it unasked?"""
        with self.lock:
            held = list(self.held)
        return any(h.version.degenerate and h.version.fits(call) for h in held)

    def suits(self, version: Version, subject: Subject) -> bool:
        """Do the instance's weights and the attributes that were read agree with a version, and the code that ran?"""
        if version.weights != subject.weights or (found := subject.under(version.ran)) is None:
            return False
        return found.attributes.match(version.reads, found.census) is None

    def siblings(self, call: Call, subject: Subject) -> list[Version]:
        """Versions that differ from a call in sizes and integers alone."""
        return [v for v in self._similar(call) if v.graph and self.suits(v, subject)]

    def closed(self, call: Call, subject: Subject, scope: Callable[[], str]) -> list[Version]:
        """The records of what is not to vary in graphs for calls that differ from this one in sizes and integers alone.
        """
        records = [v for v in self._similar(call) if v.kind == "open" and self.suits(v, subject)]
        return [v for v in records if v.scope == scope()]

    def in_vain(self, call: Call, subject: Subject, wish: Wish, rivals: Collection[str]) -> bool:
        """Is it known that a graph in which this varies takes the place of none of `rivals`?

        On another side of a branch on sizes it may take one, so that there each of them is asked for once more.
        """
        records = [v for v in self._similar(call) if v.kind == "full" and (v.open_dims, v.open_ints) == wish]
        records = [v for v in records if set(v.scope.split()).issuperset(rivals) and self.suits(v, subject)]
        return len(records) > len(rivals) or any(not v.broken(call) for v in records)

    def _similar(self, call: Call) -> list[Version]:
        """Those of a call's structure.

        Versions of large programs hold what the code that ran asks for, and the call what any of it may: this differs.
        """
        with self.lock:
            held = list(self.held)
        return [h.version for h in held if h.version.similar(call, ambient=h.version.ran is None)]

    def reads(self, call: Call, subject: Subject) -> list[Read]:
        """All that versions for calls of this structure have read, as far as the instance has it."""
        found = dict.fromkeys(read for version in self._similar(call) for read in version.reads)
        states = {path: vars(v) for path, v in subject.census.objects.items() if hasattr(v, "__dict__")}

        def has(read: Read) -> bool:
            group = read.kind == "group"
            return read.path in states and (not group or read.name in {"__dict__", *states[read.path]})

        return [read for read in found if read.path == _environment.PATH or has(read)]

    def refresh(self, store: Any) -> None:
        """Take over what the store holds for this key and is not known yet."""
        for entry in store.versions(self.key):
            if entry.version in self._known:
                continue
            version = _parse(entry.meta, entry)
            if version is not None and version.graph is not None:
                self.add(Held(version, entry, disk=True), entry.version)
        with self.lock:
            known = {(h.version.identity, h.version.ran) for h in self.held if h.version.reason}
        for record in store.failures(self.key):
            version = _parse(record, None)
            if version is not None and version.reason and (version.identity, version.ran) not in known:
                self.add(Held(version, None, disk=True), "")

    def add(self, held: Held, name: str) -> None:
        with self.lock:
            if name:
                if name in self._known:
                    return
                self._known.add(name)
            self.held.append(held)
            for record in [each.version for each in self.held if each.version.failed]:
                for each in self.held:
                    if each.entry is not None and each.entry.version == record.failed:
                        each.refuse(record.scope, record.reason)

    def drop_covered(self, by: Version) -> list[Held]:
        """Forget the versions that a wider one serves as well; returns them."""
        with self.lock:
            covered = [h for h in self.held if h.version is not by and by.covers(h.version)]
            self.held = [h for h in self.held if h not in covered]
        return covered

    def drop(self, held: Held) -> None:
        with self.lock:
            self.held = [h for h in self.held if h is not held]
            if held.entry is not None:
                self._known.discard(held.entry.version)


def _order(held: Held) -> tuple[bool, bool, int]:
    return not held.version.degenerate, bool(held.version.reason), -held.version.width


def _parse(meta: Any, entry: Any) -> Version | None:
    try:
        return Version.from_meta(meta)
    except (KeyError, TypeError, ValueError) as fault:
        _log.debug("an entry of another format is left alone: %s (%s)", entry, fault)
        return None


_FAMILIES: weakref.WeakValueDictionary[tuple[str, str], Family] = weakref.WeakValueDictionary()
_LOCK = _fork_safe.Lock()


def family(store: Any, key: str) -> Family:
    """The family of a key in a store; it lives as long as some instance's state refers to it."""
    name = f"{id(store)}" if not hasattr(store, "root") else str(store.root)
    with _LOCK:
        found = _FAMILIES.get((name, key))
        if found is None:
            found = _FAMILIES[name, key] = Family(store, key)
        return found


def renew_after_fork() -> None:
    """Forget what threads of the parent were about to do."""
    for each in list(_FAMILIES.values()):
        for held in each.held:
            held.ranges.renew_after_fork()
