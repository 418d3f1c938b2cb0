"""What a method works on at one moment: its roots, their census, its key. Made anew at every miss: each may change."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from hybrid_infer import _fork_safe, _keys
from hybrid_infer._errors import TraceError
from hybrid_infer._structure import class_path, keeps_its_name
from hybrid_infer._version import FORMAT, TRACES, Weight
from hybrid_infer.fingerprint import _framework_code, _walk
from hybrid_infer.fingerprint._fingerprint import External, Fingerprint
from hybrid_infer.fingerprint._walked import Known, Walked
from hybrid_infer.objects import _state
from hybrid_infer.state import _astray, _census, _compiled_layers, _entries, _layer_hooks, _ran, _roots
from hybrid_infer.state._arming import arm, watch_code
from hybrid_infer.state._attributes import Attributes, Read
from hybrid_infer.state._carry import Carry
from hybrid_infer.state._codes import Codes
from hybrid_infer.state._given import is_object
from hybrid_infer.state._orders import Orders

if TYPE_CHECKING:
    from hybrid_infer.state._reach import Reach


class Unformed(Exception):
    """There is no telling yet what a method works on, as before the first call of one of torch's lazy layers."""


class Subject:
    """The state of one instance, as far as a version can depend on it.

    ``opaque`` says what keeps the method off the disk (empty if nothing does). ``loose`` are tensors that code
    reaches where no twin can take their place; they are constants of a graph and part of the key by content. ``kinds``
    are the classes of what is passed to a call, whose methods it may use, and ``passed`` those of them that are passed
    themselves, to be called. `carries`: see `_carry`. `walked` keeps what
    was found in its code until that changes.

    ``large``: only what runs of its code is to count, where that can be told (see `_ran`). Of what has run before,
    ``among`` holds the marks, and nothing else is followed; None where everything is. It is what `look` tells of a
    ``place``, the key of all but the code, if that is known there. Without `look`, nothing is kept by what has run.
    """

    def __init__(
        self, frontend: Any, function: Any, owner: Any, has_owner: bool, name: str, cache_key: str | None,
        kinds: Sequence[type] = (), carries: Sequence[Carry] = (), walked: Walked | None = None,
        look: Callable[[str], frozenset[str] | None] | None = None, among: frozenset[str] | None = None,
        passed: Sequence[type] = (),
    ) -> None:  # fmt: skip
        self.frontend, self.name, self._cache_key = frontend, name, cache_key
        self._anew = functools.partial(
            Subject, frontend, function, owner, has_owner, name, cache_key, kinds, carries, walked, passed=passed
        )
        #: Marks of code that counts in any case: static models before ran it.
        self.before: frozenset[str] = frozenset()
        self._others: dict[frozenset[str], Subject] = {}
        self.roots: dict[str, Any] = {"self": owner} if has_owner else {}
        self.roots.update(_roots.find(function, frontend))
        #: May hooks of the method's own layer run inside of it? A capture finds out.
        self.calls_itself = not has_owner
        self.census = _census.take(self.roots, frontend, carries)
        self._refuse_unformed()
        self.weights = tuple(self._weight(n, slots) for n, slots in self.census.weights().items())
        self.among = look(self.place) if among is None and look is not None else among
        self.attributes = Attributes(frontend, self.among)
        # Of these a capture tells what was read; of others that stand below a global, all counts.
        objects, notes = self.census.objects.values(), self.attributes.notes
        inside = {id(v) for v in objects if type(v) is list or _entries.contains(v) or notes(v)}
        inside |= {id(slot.tensor) for slot in self.census.slots}
        held, themselves, others = _census.named(self.census)
        classes = list(dict.fromkeys([*(type(layer) for _, layer in self.census.layers), *held, *kinds]))
        layer_type = frontend.layer_type
        below = {type(layer) for path, layer in self.census.layers if len(path) > 1}
        owner_class = type(owner) if has_owner and isinstance(owner, layer_type) and type(owner) not in below else None

        walked, attributes = Walked() if walked is None else walked, _census.functions(self.census)

        def known(functions: Sequence[_framework_code.Named]) -> Known:
            every = [function, *(each.value for each in functions)]
            names, watch = self.attributes.mentioned, functools.partial(watch_code, self.attributes)
            return walked.of(
                frontend, every, classes, owner_class, others, attributes, inside, names, watch, self.among,
                [*themselves, *passed],
            )  # fmt: skip

        #: Functions in the place of the framework's.
        libraries = _framework_code.of_libraries(frontend, self._kinds())
        self.replaced = [*_framework_code.replaced(frontend), *_framework_code.programs(libraries)]
        found = known(self.replaced)
        self._named = _framework_code.named(frontend, self._codes_of(found.code, attributes))
        self._libraries = libraries
        own = _framework_code.of_layers(frontend, [*self._kinds(), *kinds])
        self._moved, watched = _framework_code.moved(own), [*libraries, *own]
        code_unchanged = found.unchanged([*self._named, *watched])
        met = {id(each.value) for each in self.replaced}
        unknown = [each for each in (*self._named, *own) if id(each.value) not in met]
        more = [each for each in unknown if _framework_code.foreign(frontend, each.name, each.value)]
        if more:
            self.replaced += more
            found = known(self.replaced)
            code_unchanged = found.unchanged([*self._named, *watched])
        self.code = found.code
        self.attributes.counted = {(id(owner), name) for owner, name, _ in self.code.classes_read}
        #: The method's code, and that of functions which objects keep: what they hold, a trace tells.
        self.codes = self._codes_of(found.code, attributes)
        leaves = (frontend.tensor_type, layer_type, *frontend.constant_types)
        layers = {type(layer) for _, layer in self.census.layers}
        self.attributes.orders = Orders(self.codes, leaves, layers)
        sentinels = dict.fromkeys(each for code in self.codes for each in code.sentinels)
        self.attributes.values.sentinels = {each: n for n, each in enumerate(sentinels)}
        self.loose = [each for each in self.code.externals if id(each.object) not in inside]
        met = {id(each.object) for each in self.code.externals} | inside
        self.loose += [each for code in self.codes[1:] for each in code.externals if id(each.object) not in met]
        self._unnoted = [self._whole(each) for each in self.loose if isinstance(each.object, layer_type)]
        censuses = [self.census, *(census for census, _, _ in self._unnoted)]
        names = self.codes.names | frontend.asked({type(layer) for census in censuses for _, layer in census.layers})
        names |= self.codes.called() | self.codes.spelled()
        self.attributes.values.named = names
        #: Of what a call is asked beside its signature, what the code names.
        self.asks = frontend.askable & names
        self.settings, self.facts = frontend.settings(names), frontend.facts(names)
        opaque = (*self.code.opaque, *(why for _, _, reasons in self._unnoted for why in reasons))
        self.opaque = () if cache_key is not None else opaque
        much = len(self.code.functions) > _walk.MANY or bool(self.opaque)
        self.large = self.among is not None or (look is not None and much)
        #: Looked at before the key is made of their values, and before a capture makes constants of them.
        self.loose_tensors = self._loose_slots()
        self.constants_unchanged = frontend.watch(self.loose_tensors) if self.loose_tensors else _always
        self.key = self._key()
        checks = [code_unchanged]
        if self.facts is not None:
            checks.append(functools.partial(_answers, self.facts, self.lasting(), self._weight_facts()))
        if self.replaced:
            checks.append(functools.partial(_framework_code.still, self.replaced))
        checks += [arm(self.attributes, reads, census, set(), called=True) for census, reads, _ in self._unnoted]
        checks += [stands for stands in map(keeps_its_name, kinds) if stands is not None]
        self.code_unchanged = checks[0] if len(checks) == 1 else lambda: all(check() for check in checks)

    def _codes_of(self, code: Fingerprint, held: Mapping[str, Mapping[str, Sequence[Any]]]) -> Codes:
        names = Codes([code]).mentioned({name for each in held.values() for name in each}) if held else set()
        functions = (function for each in held.values() for name in each if name in names for function in each[name])
        return Codes([code, *map(self.attributes.code, dict.fromkeys(functions))])

    def _kinds(self) -> dict[type, None]:
        """The classes of layers and of objects that are no containers."""
        return dict.fromkeys(type(value) for value in self.census.objects.values() if type(value) not in (dict, list))

    def whole(self) -> Subject:
        """The same, with all code that names lead to."""
        if self.among is None:
            return self
        found = self._anew(look=lambda place: None)  # where nothing is known to have run
        found.before = self.among
        return found

    def renewed(self) -> Subject:
        """The same, as it is now that modules were imported, with all code that names lead to."""
        self._others.clear()
        found = self._anew(look=lambda place: None)
        found.before, found.calls_itself = self.before, self.calls_itself
        return found

    def narrowed(self, codes: frozenset[str]) -> Subject:
        """The same, of whose code only functions with these marks are followed."""
        if self.among == codes:
            return self
        if codes not in self._others:
            self._others[codes] = self._anew(among=codes)
        return self._others[codes]

    def under(self, ran: _ran.Ran | None) -> Subject | None:
        """The subject that a static model is of, by what had run for it; None where that is another code now."""
        if ran is None:
            return self
        found = self.narrowed(ran.codes)
        return found if found.key.hex == ran.key else None

    @property
    def ran(self) -> _ran.Ran | None:
        """What a static model of this subject is kept with."""
        return None if self.among is None else _ran.Ran(self.among, self.key.hex)

    @_fork_safe.cached_property
    def _holds(self) -> dict[int, Any]:
        from hybrid_infer.state._reach import Reach

        found = dict(self.census.paths)
        held: dict[int, Any] = {id(value): value for value in self.census.objects.values() if id(value) in found}
        with contextlib.suppress(TraceError):  # then no capture will get as far
            held.update(Reach(self.code, found, self.frontend.ignored_writes).seen())
        return held

    @property
    def holds(self) -> frozenset[int]:
        """The ids of what the layer and the code hold."""
        return frozenset(self._holds)

    @property
    def holds_objects(self) -> frozenset[int]:
        """Those of objects that are no lists and no dicts: to be given one is more than to be given its equal."""
        return frozenset(number for number, value in self._holds.items() if is_object(type(value)))

    def _refuse_unformed(self) -> None:
        unformed = self.frontend.unformed
        for name in [slot.name for slot in self.census.slots if unformed(slot.tensor)]:
            raise Unformed(f"{name} has no shape before the first call of its layer")
        for path in [path for path, layer in self.census.layers if unformed(layer)]:
            raise Unformed(f"{'.'.join(path)} becomes another layer by its first call")

    def _weight(self, name: str, slots: Any) -> Weight:
        dtype, shape, _ = self.frontend.describe(slots[0].tensor)
        return Weight(name, tuple(slot.name for slot in slots), dtype, tuple(shape))

    def _whole(self, each: External) -> tuple[_census.Census, list[Read], list[str]]:
        """All attributes of a layer that no twin takes the place of, so that no look-up on it is noted."""
        census = _census.take({f"{each.name} of {each.holder}": each.object}, self.frontend)
        objects = {path: value for path, value in census.objects.items() if path and hasattr(value, "__dict__")}
        names = {path: {"__dict__"} for path in objects}
        reads, opaque, _ = self.attributes.reads(census, names, set(census.paths))
        return census, reads, opaque

    def _surroundings(self) -> dict[str, Any]:
        """All of a key but what comes of the code."""
        from hybrid_infer import __version__

        found: dict[str, Any] = {
            "format": f"{FORMAT}.{TRACES}",
            "hybrid_infer": __version__,
            **{f"version {name}": version for name, version in self.frontend.versions().items()},
            "method": self.name,
            "layers": [[list(path), class_path(type(v))] for path, v in self.census.layers],
            "weights": [[w.name, list(w.paths), w.dtype, list(w.shape)] for w in self.weights],
            "weights of other kinds": self._refused(),
        }
        if self.census.carries:
            found["what it assigns"] = [[list(c.path), c.entry, c.key, c.read] for c in self.census.carries]
        if self._cache_key is not None:
            found["cache_key"] = self._cache_key
        return found

    @_fork_safe.cached_property
    def place(self) -> str:
        """Where static models of a large program are kept, whatever its code is."""
        return _keys.method_key({"code": "what has run of it"}, self._around).hex

    @_fork_safe.cached_property
    def _around(self) -> tuple[tuple[str, str], ...]:
        return _keys.method_key(self._surroundings()).items

    def _key(self) -> _keys.Key:
        ingredients: dict[str, Any] = {
            "constants": [[e.kind, e.holder, e.name, self._content(e.object)] for e in self.loose],
            "layers held by code": [
                [_layer_hooks.find(census.layers, self.frontend.hooks, True) is not None, *map(list, reads)]
                for census, reads, _ in self._unnoted
            ],
        }
        if self.facts is not None:
            ingredients["facts of weights"] = repr(self._weight_facts())
        if orders := self.attributes.orders.of_code(self.census.paths.keys()):
            ingredients["order of sets"] = orders
        labels = _framework_code.labels(self.frontend, [*self._named, *self.replaced])
        ingredients["functions of the framework"] = [*labels, *self._moved]
        ingredients["functions of libraries"] = _framework_code.labels_of_libraries(self._libraries)
        ingredients.update({f"code {label}": digest for label, digest in self.code.ingredients.items()})
        return _keys.method_key(ingredients, self._around)

    def _refused(self) -> list[list[str]]:
        """Weights that no engine can be given: a graph may be made where they are, that does not use them."""
        found = []
        for name, slots in self.census.weights().items():
            why = self.frontend.refuse(slots[0].tensor)
            if why:
                held = self.frontend.parts(slots[0].tensor)
                found.append([name, why, self._values(held) if len(held) > 1 else ""])
        return found

    def _content(self, value: Any) -> str:
        """A digest of a tensor's, array's or layer's values."""
        tensors = self._tensors(value)
        if not tensors:
            return _keys.digest(value) if type(value).__name__ == "ndarray" else _keys.digest(repr(type(value)))
        return self._values(tensors)

    def _tensors(self, value: Any) -> list[Any]:
        """The tensors in a value; of a sparse or quantised one, those that it is made of."""
        slots = _census.take({"value": value}, self.frontend).slots
        return [part for slot in slots for part in self.frontend.parts(slot.tensor)]

    def _values(self, tensors: Sequence[Any]) -> str:
        parts = []
        for tensor in tensors:
            dtype, shape, _ = self.frontend.describe(tensor)
            wire = "float32" if dtype == "bfloat16" else dtype
            parts.append([dtype, list(shape), _keys.digest(self.frontend.exporter(dtype, wire)(tensor))])
        return _keys.digest(parts)

    def in_place(self) -> bool:
        """Are the weights, and the layers that hold them, where they were found, as far as that is told at once?"""
        census, group = self.census, self.frontend.groups[-1]
        for path, layer in census.layers:
            beside = getattr(census.objects.get(path[:-1]), "__dict__", {}).get(group)
            if beside is not None and beside.get(path[-1], layer) is not layer:
                return False
        try:
            return all(slot.box is None or slot.box[slot.key] is slot.tensor for slot in census.slots)
        except (KeyError, IndexError):  # a container lost one
            return False

    def lasting(self) -> list[Any]:
        """The tensors that no call brings."""
        return [slot.tensor for slot in self.census.slots] + [tensor for _, _, tensor in self.loose_tensors]

    def _weight_facts(self) -> list[Any]:
        assert self.facts is not None
        return [*map(self.facts, self.lasting())]

    def asks_for_gradients(self) -> bool:
        """Does the code look whether gradients are recorded, so that it may do another thing where they are?"""
        return self.asks_for_history() or "is_grad_enabled" in self.asks

    def asks_for_history(self) -> bool:
        """Does it ask that of tensors: whether they require one, or come of something that does?"""
        return not self.frontend.history.isdisjoint(self.asks)

    def asks_for_the_clock(self) -> bool:
        """Does the code name the clock, or another thing that differs from call to call?"""
        if any(code.context_variables for code in self.codes):
            return True
        from hybrid_infer.capture import _moment, _outside

        bodies = any(_outside.suspected(function, code) for function, code in self.codes.bodies())
        return bodies or self.holds_any(_moment.held)

    def compares_with(self, wanted: Callable[[Any], bool]) -> bool:
        """May the code ask whether a value of this kind, which it or the state holds, equals another one?"""
        return self.holds_any(wanted) and self.codes.compare_values()

    def holds_any(self, wanted: Callable[[Any], bool]) -> bool:
        """Does the code, or an object of the state, hold such a value under a name?"""
        state = (getattr(value, "__dict__", None) for value in self.census.objects.values())
        kept = (held for each in state if isinstance(each, dict) for held in _state.elements(each))
        return any(map(wanted, self.codes.held())) or any(map(wanted, kept))

    def caches(self) -> list[Any]:
        """What the code and the state lead to that answers from a cache."""
        held = [cache for code in self.codes for cache in code.caches]
        return [*{id(each): each for each in (*held, *_census.caches(self.census))}.values()]

    def hooked(self) -> _layer_hooks.Hooked | _layer_hooks.Rewritten | None:
        """A layer around whose calls in the method user code runs."""
        layers = [*self.census.layers, *(each for census, *_ in self._unnoted for each in census.layers)]
        return _layer_hooks.find(layers, self.frontend.hooks, self.calls_itself) or self._rewritten()

    def _rewritten(self) -> _layer_hooks.Rewritten | None:
        """Such a layer, around which that code was put as its ``forward``, and would work on the program's own layers.

        It would leave there what a trace computes, as diffusers' hooks do that keep results from call to call.
        """
        for path, layer in self.census.layers:
            forward = vars(layer).get("forward")
            if forward is None or path == _layer_hooks.OWN or _compiled_layers.is_own(layer):
                continue
            if compiled := _compiled_layers.by_another_backend(layer, ".".join(path)):
                return _layer_hooks.Rewritten(layer, forward, compiled)
            for reason in self.attributes.astray(forward, f"{'.'.join(path)}.forward", self.census):
                return _layer_hooks.Rewritten(layer, forward, reason)
        return None

    def reach(self) -> Callable[[], Reach]:
        """Watches what the code can write to beside the roots, from each call of what it returns."""
        from hybrid_infer.state._reach import Reach

        known = set(self.census.paths) | self.census.grouped
        # No twin takes the place of a loose tensor, so a write to it is a write to the program's. Its memory is asked
        # for now, since a tracer does not give it away.
        views = [
            (self.frontend.exporter(dtype, dtype)(tensor), f"the tensor {each.name} of {each.holder}")
            for each in self.loose
            for tensor in self._tensors(each.object)
            if (dtype := self.frontend.describe(tensor)[0]) != "bfloat16"  # which NumPy has no view of
        ]

        codes, others = _astray.shared(self.census, self.frontend, self.attributes.code)
        views += [(each, f"an object of class {type(each).__name__}") for each in others]

        def start() -> Reach:
            reach = Reach(self.code, known, self.frontend.ignored_writes, codes)
            for view, name in views:
                reach.add(view, name)
            return reach

        return start

    def _loose_slots(self) -> list[tuple[dict[str, Any], str, Any]]:
        """The loose tensors as slots of boxes of our own, to be watched for changes of value."""
        return [({"value": part}, "value", part) for each in self.loose for part in self._tensors(each.object)]


def _always() -> bool:
    return True


def _answers(facts: Callable[[Any], Any], tensors: Sequence[Any], before: list[Any]) -> bool:
    return list(map(facts, tensors)) == before
