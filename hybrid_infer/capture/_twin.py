"""A structural twin of what a method works on: traced in its place, so that the live program never sees a tracer.

The twin is a deep copy whose memo maps every tensor to itself: no weight is copied. Traced weights are put into its
slots while the undecorated function runs on it. A comparison of its state before and after shows what the method
writes.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from types import CodeType, FunctionType
from typing import Any

from hybrid_infer import _profiler
from hybrid_infer._errors import TraceError
from hybrid_infer._parameters import Parameters
from hybrid_infer._signature import Layout, Signatures
from hybrid_infer._unsupported import OfValues, Unsupported
from hybrid_infer.capture import _assigned, _outside, _rounding
from hybrid_infer.capture._copies import with_same_tensors
from hybrid_infer.capture._since import Since
from hybrid_infer.objects import _beside, _left_out, _origin
from hybrid_infer.state import (
    _census,
    _entries,
    _environment,
    _given,
    _layer_hooks,
    _mappings,
    _omegaconf,
    _reads,
    _roots,
    _tensor_attributes,
    _written,
)
from hybrid_infer.state._carry import Boxes, Carry
from hybrid_infer.state._census import Census, Path, Place, rebuilt
from hybrid_infer.state._described import described, differing, memories
from hybrid_infer.state._ran import Trail
from hybrid_infer.state._reach import Reach
from hybrid_infer.state._reads import Recorder

SELF = "self"


class Twin:
    """One call prepared for tracing (see ``Tracee``).

    After ``run``: ``results`` is the layout of what the method returned, ``sources`` says for each of its leaves
    where it comes from (``("y", k)`` computed, ``("x", i)`` a tensor of the call, ``("w", i)`` a weight), ``names``
    which attributes were read on which object, ``writes`` what the method did besides computing its results. What it
    did to the objects of the call in `given` is among its results (see `_given`), and what it assigned to the carries
    of the `parameters`. ``carries``: such places that were found, where nothing else keeps it from being served.
    """

    def __init__(
        self,
        frontend: Any,
        function: Any,
        roots: Mapping[str, Any],
        live: Census,
        parameters: Parameters,
        layout: Layout,
        name: str,
        dynamic_ints: frozenset[int],
        style: tuple[int, Collection[str]],
        reach: Callable[[], Reach],
        clocks: bool = False,
        given: Sequence[Any] = (),
        constants: Sequence[Any] = (),
        noting: bool = False,
        past_notes: bool = False,
        partly: Callable[[Any], bool] = lambda value: False,
    ) -> None:
        self.constants = constants
        self.style, self._reach, self._clocks, self.given = style, reach, clocks, given
        self.watched, self.any_size, self.asks_for_gradients, self.assuming = True, False, False, False
        self.sides: tuple[tuple[str, bool], ...] = ()
        self.compared: Callable[[Any], bool] = lambda value: False  # may code compare its class? Then it keeps that
        self.past_notes = past_notes  # may the code look an attribute up so that nobody notes it?
        self.unsuited = False  # was code run that may tell what notes look-ups from what it stands for?
        self.trail: Trail | None = None  # where the code that runs is to be noted
        self.tokens = False  # may the code look at what a context variable held before it set that?
        self.written: frozenset[int] = frozenset()
        self.state: frozenset[int] = frozenset()
        self.passed: Sequence[Any] = ()
        self.writable = False
        self.frontend, self.name, self.layout, self.parameters = frontend, name, layout, parameters
        self.live = live
        self._refusing: list[_layer_hooks.Refusing] = []
        self._refuse_hooks()
        self._before = described(live, frontend)
        twins, self.census, memo = with_same_tensors(roots, live, frontend, noting, past_notes, partly)
        for box, key in list(self.census.computed(frontend.groups)):
            del box[key]
        for path, layer in self.census.layers:
            for name in self.frontend.hooks:
                if (hooked := _layer_hooks.around(path, layer, (name,))) is not None:
                    vars(layer)[name] = _layer_hooks.Refusing(hooked)
                    self._refusing.append(vars(layer)[name])
        for path, computed in self.census.recomputed.items():
            vars(self.census.objects[path]).update(dict.fromkeys(computed, _layer_hooks.Stale()))
        # What a class makes anew in its own __setstate__ (the references of an LSTM's flat weights) is in no memo.
        self._carried = Boxes(parameters.carries, self.census.objects)
        self._copies = {**self.census.objects, **{p: memo[id(v)] for p, v in live.objects.items() if id(v) in memo}}
        if [s.path for s in self.census.slots] != [s.path for s in live.slots]:
            raise TraceError(*_left_out.differing(live, self.census))
        if (lost := _left_out.lost(live, memo)) is not None:
            raise TraceError(*lost)
        self._refuse_shared()
        groups = live.weights()
        self.weights = [slots[0].tensor for slots in groups.values()]
        self.tensors = layout.tensors
        self.labels = [*groups, *layout.places]
        self._dynamic_ints = sorted(dynamic_ints)
        self.ints: list[int] = [layout.ints[i] for i in self._dynamic_ints]
        self.function = function
        self.owner = twins.get(SELF)
        self.has_owner = SELF in twins
        self.carries: tuple[Carry, ...] = ()
        self.results: Layout | None = None
        self.sources: list[tuple[str, int]] = []
        self.writes: list[str] = []
        #: The arguments that the method has require a gradient, among the tensors of the call.
        self.requiring: set[int] = set()
        self.names: dict[Path, set[str]] = {}
        self.changed: defaultdict[Path, set[str]] = defaultdict(set)
        self.first: dict[Path, set[str]] = {}  # of these, what was looked at before the method assigned it
        self.whole: set[int] = set()
        self.wholly: set[int] = set()  # ids of dicts of which no single entries were noted
        self._rebuilt = layout.rebuilder(frontend, parameters.defaults)

    def let_go(self) -> None:
        """Drop the live layer and the copy: the cycles that tracers leave keep this object until the collector runs."""
        vars(self).clear()

    def moved(self) -> list[str]:
        """What was read of the live object and is not what it was when the copy was made: another thread is at work.

        To be asked after ``run``.
        """
        after = described(self.live, self.frontend)
        found = []
        for path, before in self._before.items():
            changed = {str(name) for _, name in differing(before, after.get(path))}
            read = self.names.get(path, set())
            if isinstance(self.live.objects[path], (dict, list)):  # whose look-ups nobody notes
                read = changed if self._reads(path) else set()
            elif "__dict__" in read:
                read = changed
            found += [".".join((*path, name)) for name in sorted(changed & read)]
        return [*found, *_omegaconf.moved(self.names, self.live, self.census)]

    def _reads(self, path: Path) -> bool:
        """Was the container at a path looked up?"""
        for n in range(len(path) - 1, 0, -1):
            names = self.names.get(path[:n])
            if names is not None:
                return path[n] in names or "__dict__" in names
        return False

    def may_write(self, tensors: frozenset[int], state: frozenset[int]) -> bool:
        """See ``Tracee``."""
        if not self.writable:
            return False
        times = Counter(map(id, self.tensors))
        if any(times[id(self.tensors[i])] > 1 for i in tensors):
            return False
        others = [weight for i, weight in enumerate(self.weights) if i not in state]
        mine = [self.weights[i] for i in sorted(state)]  # of arguments each call is asked
        return _written.Others(self.frontend, [*others, *self.constants]).apart(mine, range(len(mine)))

    def calls_itself(self) -> bool:
        """Has the trace asked for hooks of the method's own layer, since the method calls that layer?"""
        return any(hooks.asked for hooks in self._refusing)

    def _refuse_hooks(self) -> None:
        found = _layer_hooks.find(self.live.layers, self.frontend.hooks)
        if found is not None:
            raise TraceError(found.reason, found.remedy)

    def _refuse_shared(self) -> None:
        """A copy that is the live object itself would be traced into: nothing of it may be written.

        What a library's own copy leaves out, as that of a `torch.fx.Graph` does with tables that are empty by now, is
        nowhere in it.
        """
        here = {id(value) for value in self.census.objects.values()}
        for path, value in self.live.objects.items():
            if path not in self._copies and id(value) not in here and self._copied_by_library(path):
                continue
            if path and self._copies.get(path, value) is value:
                holds = isinstance(value, (dict, list, self.frontend.layer_type))
                if holds and id(value) not in self.live.grouped:
                    raise TraceError(f"{'.'.join(path)} of class {type(value).__name__} cannot be copied")

    def _copied_by_library(self, path: Path) -> bool:
        above = (self.live.objects.get(path[:n]) for n in range(1, len(path)))
        kinds = (type(value) for value in above if hasattr(type(value), "__deepcopy__"))
        return any(_origin.of_object(kind) != _origin.USER for kind in kinds)

    def run(
        self,
        weights: Sequence[Any],
        tensors: Sequence[Any],
        ints: Sequence[Any],
        convert: Callable[[Callable[..., Any]], Callable[..., Any]] = lambda function: function,
    ) -> list[Any]:
        """See ``Tracee.run``."""
        groups = self.census.weights()
        weights = [weight.clone() if i in self.state else weight for i, weight in enumerate(weights)]
        places = self._places(groups, weights)
        tensors = [tensor.clone() if i in self.written else tensor for i, tensor in enumerate(tensors)]
        self.passed = [*(weights[i] for i in sorted(self.state)), *tensors]
        targets = [*(tensors[i] for i in sorted(self.written)), *(weights[i] for i in sorted(self.state))]
        values = self._rebuilt(tensors, dict(zip(self._dynamic_ints, ints, strict=True)))
        args, kwargs = self.parameters.unbind(values, *self.style)
        reach, given = self._reach(), self._objects(values)
        passed_by_callers = len(values) - len(self.parameters.carries)
        for name, value in zip(self.parameters.names[:passed_by_callers], values, strict=False):
            for part in _given.parts([value], given):
                reach.add(part, f"the argument `{name}`")
        before = described(self.census, self.frontend)
        held = memories(self.census, self.frontend)
        passed = [*weights, *tensors]
        requires = [*map(self.frontend.requires_grad, passed)]
        recorder, looked = Recorder(), _tensor_attributes.Looked(passed, self.weights)
        watched = self._recorded()
        as_they_are = {id(value) for value in watched.values() if not self.watched or self.compared(value)}
        objects = _given.objects(values, self.parameters.defaults)
        partly = _mappings.Watched(objects, recorder, lambda value: self.looked_past() or self.compared(value))
        forms, entries = [*map(_beside.form, objects)], _entries.Notes(self.census.objects, self.watched)
        settings = _omegaconf.Notes(self.census.objects, self.watched)
        unwatched = recorder.watch(value for value in watched.values() if id(value) not in as_they_are)
        outside: _outside.Watch | None = None
        try:
            for place, value in places:
                place.box[place.key] = value
            clones = _roots.Clones(self.census.objects[()])
            function = clones.of(self.function)
            with (
                _outside.watch(
                    clocks=self._clocks, origin=self.frontend.origin, trail=self.trail, tokens=self.tokens
                ) as outside,
                _tensor_attributes.lookups(looked, self.frontend.tensor_types),
                self._carried.holding(self.parameters.carried(values)),
                _rounding.Rounding(values) as rounding,
            ):
                owner = (self.owner,) if self.has_owner else ()
                recorder.begin()
                entries.begin()
                with settings:
                    value = _given.called(
                        convert(function), (*owner, *args), kwargs, given, targets, self._content, self._carried
                    )
            value = entries.plain(value)
            self.writes, self.carries = [*outside.reasons, *rounding.reasons], ()
            assigned = _assigned.compare(self, places, before)
            for i, (tensor, required) in enumerate(zip(passed, requires, strict=True), start=-len(weights)):
                if self.frontend.requires_grad(tensor) == required:
                    continue
                if i < 0 or required or self.parameters.carries:
                    self.writes.append(f"it changes whether {self.labels[i + len(weights)]} requires a gradient")
                else:
                    self.requiring.add(i)
            for i, name in looked.put():
                self.writes.append(f"it writes to {self.labels[i]} in place: to its attribute {name}")
            for found, before_run in zip(map(_beside.form, objects), forms, strict=True):
                if found != before_run:
                    what = "class" if found[0] is not before_run[0] else "default_factory"
                    self.writes.append(f"it changes the {what} of an argument")
            self.writes += [f"it assigns the global {name}" for name in clones.assigned()]
            self.writes += [f"it changes {name}, a variable of an enclosing function" for name in clones.nonlocals()]
        except Exception as fault:
            self._note_failed(recorder, watched, outside, entries, settings)
            for reason in (*partly.read(), *_left_out.read(self.live.left_out, self.names)):
                raise TraceError(reason) from fault
            raise
        finally:
            self.writes += [f"it reads the attribute {name} of {self.labels[i]}" for i, name in looked.untold]
            self.writes += partly.read()
            recorder.stop()
            entries.stop()
            if self.trail is not None:
                self.trail.look_at_caches()
            self.passed, written = (), reach.take_back()
            for memory in held:  # another run of this copy starts from where this one did
                memory.restore()
        written = list(dict.fromkeys(written + recorder.assigned + self._held_elsewhere(value, given, reach)))
        self.writes += [f"it changes {name}, which is outside of the layer" for name in written]
        mine = {id(obj) for obj in (*self.census.objects.values(), *self.live.objects.values())}
        self.names = self._looked_up(recorder, watched, outside, self._depends)
        self.first = {path: recorder.first(obj) for path, obj in watched.items()}
        self.names.update((path, self._every(obj)) for path, obj in watched.items() if id(obj) in as_they_are)
        firsts = [slots[0].path for slots in groups.values()]
        self.names.update((firsts[i], names) for i, names in looked.names.items())
        left = {id(v) for v in unwatched} | (as_they_are if self.watched else set())
        _assigned.settle(self, assigned, value, left)
        missed = {path: {"__dict__"} for path, obj in watched.items() if id(obj) in left}
        self.writes += _left_out.read(self.live.left_out, {**self.names, **missed})
        self.whole = {id(self.live.objects[path]) for path, obj in watched.items() if id(obj) in left}
        self._add_entries(entries)
        self.names.update(settings.names())
        self.whole |= self.wholly

        def kept(held: Any) -> bool:
            return id(held) in mine or reach.holds(held) or _reads.notes(type(held))

        return self._collect(value, weights, tensors, kept, given)

    def _places(self, groups: Mapping[str, Any], weights: Sequence[Any]) -> list[tuple[Place, Any]]:
        """Where the twin holds its weights, each with the traced one that comes there, and tuples with these in them.
        """
        traced = dict(zip(groups, weights, strict=True))
        replacement = {id(slots[0].tensor): traced[name] for name, slots in groups.items()}
        places: list[tuple[Place, Any]] = [
            (slot, traced[name]) for name, slots in groups.items() for slot in slots if slot.box is not None
        ]
        return places + [(place, rebuilt(place.held, replacement)) for place in self.census.tuples]

    def _note_failed(
        self, recorder: Recorder, watched: Mapping[Path, Any], outside: _outside.Watch | None, entries: _entries.Notes,
        settings: _omegaconf.Notes,
    ) -> None:  # fmt: skip
        """Note what a run that failed has looked at.

        Another way through the method may look at what no way so far has looked at, and was not there. With other
        values it may not fail; what it changes itself is another one at each call.
        """
        self.names = self._looked_up(recorder, watched, outside, lambda _, note: note.names - note.assigned)
        self._add_entries(entries)
        self.names.update(settings.names())
        first = {path: recorder.first(obj) for path, obj in watched.items()}
        needed = [carry for carry in self._carried.unread() if carry.key in first.get(carry.path, ())]
        if needed:
            self.carries = tuple(carry._replace(read=True) for carry in needed)
            self.writes = [f"it replaces {carry.name}" for carry in needed]

    def _content(self, tensor: Any) -> Any:
        return self.frontend.latest(tensor).clone()

    def _objects(self, values: Sequence[Any]) -> list[Any]:
        """The copies of the call's own objects; none where what is written to them is not to be returned."""
        found = _given.objects(values, self.parameters.defaults) if self.given else []
        return found if len(found) == len(self.given) else []

    def _held_elsewhere(self, value: Any, given: Sequence[Any], reach: Reach) -> list[str]:
        """Changed objects of the call that the layer or the code holds too: there, the change was not seen."""
        changed = {id(each) for each in _given.changed(value)}
        known = {id(each) for each in self.live.objects.values()}
        found = []
        for each, own in zip(given, self.given, strict=False):
            if id(each) in changed and (id(own) in known or reach.holds(own)):
                found.append(f"an argument of class {type(own).__name__}")
        return found

    def since(self, functions: Iterable[Any]) -> Since:
        """See ``Tracee``."""
        return Since(self.census, functions, self.frontend, self._reach())

    def noted(self) -> Any:
        """See ``Tracee``."""
        return self.results, self.sources, self.writes, self.names, self.whole, self.carries

    def observing(self, on: bool) -> AbstractContextManager[None]:
        """See ``Tracee``."""
        return _outside.observing() if on else _profiler.unobserved()

    def rewritten(self, function: FunctionType, made: CodeType) -> None:
        """See ``Tracee``."""
        if self.trail is not None:
            self.trail.rewritten(function, made)

    def recall(self, noted: Any) -> None:
        """See ``Tracee``."""
        self.results, self.sources, self.writes, self.names, self.whole, self.carries = noted

    def _looked_up(
        self, recorder: Recorder, watched: Mapping[Path, Any], outside: _outside.Watch | None,
        counts: Callable[[Path, Any], set[str]],
    ) -> dict[Path, set[str]]:  # fmt: skip
        """What a run has looked at: the names on each object of the twin that count, and environment variables."""
        notes = {path: recorder.looked[id(obj)] for path, obj in watched.items() if id(obj) in recorder.looked}
        found = {path: names for path, note in notes.items() if (names := counts(path, note))}
        if outside is not None and outside.variables:
            found[_environment.PATH] = {*outside.variables}
        return found

    def _depends(self, path: Path, note: Any) -> set[str]:
        """The names on an object that count: what was looked at, and what was assigned and is as before.

        With another value there, the method would have changed it.
        """
        unchanged: set[str] = note.assigned - self.changed[path] - self.frontend.ignored_writes
        found: set[str] = note.names | unchanged
        return found

    def _every(self, obj: Any) -> set[str]:
        """Each name that a look-up on an object may be for, where none was noted."""
        names = {str(name) for name in vars(obj)}
        if isinstance(obj, self.frontend.layer_type):
            names |= {str(name) for group in self.frontend.groups for name in vars(obj).get(group) or ()}
            names -= {*self.frontend.groups, *self.frontend.hooks}
        for kind in type(obj).__mro__:
            if kind in (object, self.frontend.layer_type):
                break
            names |= vars(kind).keys()
        return {name for name in names if name in vars(obj) or not (name.startswith("__") and name.endswith("__"))}

    def _recorded(self) -> dict[Path, Any]:
        """Objects of the twin on which look-ups are noted: layers and plain objects, each a copy."""
        found = {}
        for path, obj in self.census.objects.items():
            live = self.live.objects.get(path)
            layer = isinstance(obj, self.frontend.layer_type)
            state = _census.has_state(obj) and not (_entries.contains(live) or _omegaconf.part(obj))
            if path and obj is not live and (layer or state):
                found[path] = obj
        return found

    def _add_entries(self, entries: _entries.Notes) -> None:
        looked = {path: names for path, names, every in entries.names() if not every}
        whole = (value for path, value in self.live.objects.items() if path not in looked)
        self.wholly = {id(value) for value in whole if _entries.contains(value)}
        self.unsuited |= entries.unsuited()
        self.names.update(looked)

    def looked_past(self) -> bool:
        """May the code look at objects of which a recorder notes nothing?"""
        return not self.watched or self.past_notes

    def _collect(
        self, value: Any, weights: Sequence[Any], tensors: Sequence[Any], kept: Callable[[Any], bool],
        given: Sequence[Any],
    ) -> list[Any]:  # fmt: skip
        signatures = Signatures(self.frontend, traced=True)
        try:
            layout = signatures.results(value, self.frontend.is_symbolic, kept, given)
        except OfValues as fault:
            raise TraceError(str(fault), "Return the tensor, and take the number out of it outside") from fault
        except Unsupported as fault:
            raise TraceError(str(fault), "Return tensors, numbers, or lists, tuples and dicts of them") from fault
        computed: list[Any] = []
        known: dict[Any, tuple[str, int]] = {id(t): ("x", i) for i, t in reversed(list(enumerate(tensors)))}
        known.update({id(self.frontend.latest(tensors[i])): ("x", i) for i in self.written})
        known.update({id(w): ("w", i) for i, w in enumerate(weights)})
        known.update({id(self.frontend.latest(weights[i])): ("w", i) for i in self.state})
        sources = []
        for kind, i in layout.leaves:
            leaf = layout.tensors[i] if kind == "t" else layout.ints[i]
            token = id(leaf) if kind == "t" else self.frontend.symbol(leaf)
            if token not in known:
                known[token] = ("y", len(computed))
                computed.append(leaf)
            sources.append(known[token])
        self.results, self.sources = layout, sources
        return computed
