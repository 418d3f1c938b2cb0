"""The hit path: signature -> route -> run. One state per method and instance."""

from __future__ import annotations

import contextlib
import logging
import operator
import os
import threading
import weakref
from collections import Counter, OrderedDict
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from hybrid_infer import (
    _background,
    _choice,
    _cinn,
    _compile,
    _family,
    _gradients,
    _progress,
    _router,
    _stance,
    _tracing,
    _trt,
    _verify,
)  # fmt: skip
from hybrid_infer._busy import NOTHING, capturing
from hybrid_infer._errors import BackendError, CaptureError, EngineError
from hybrid_infer._family import Family, Held
from hybrid_infer._log import tell
from hybrid_infer._met import Met
from hybrid_infer._request import Errand, Request
from hybrid_infer._resolve import resolve
from hybrid_infer._route import Compiled, Eager, for_a_while
from hybrid_infer._serve import Invocation
from hybrid_infer._signature import Signatures, Unsupported
from hybrid_infer._subject import Subject
from hybrid_infer._types import TensorSpec
from hybrid_infer._version import Call, Version

_log = logging.getLogger("hybrid_infer")

_MEMO = 256  # signatures of one instance that are kept ready
_REBINDS = 3  # changes of weights after which they are fed as inputs instead of bound
_RESETS = 8  # changes of what has no fingerprint after which a method is not captured anew at each
_PAUSE = 60.0  # seconds for which it waits
_REST = 64  # calls of a method that no engine makes faster, for which it is left alone

_ATTRIBUTES = operator.attrgetter("__dict__")
_CALL = Errand()
_LATER = Errand(ahead=True, forked=True)  # for a call that the eager method has answered
_chosen, _look_up, _STANCE, _EAGERLY = _stance.chosen, _stance.look_up, _stance.STANCE, _stance.EAGERLY
_FAILING = _stance.FAILING


class State:
    """What a method knows about one instance. ``owner`` is passed to each call and never kept."""

    def __init__(self, method: Any, frontend: Any) -> None:
        self.method, self.frontend = method, frontend
        self.counters = method.counters
        self.memo: OrderedDict[Any, Compiled | Eager] = OrderedDict()
        self.routes: dict[tuple[int, str], Compiled] = {}  # by version and chosen engine
        #: Versions that lose to the eager method, by scale of the call, and how such calls are answered.
        self.slower: dict[tuple[int, int], tuple[Held, Eager]] = {}
        self.rest, self.heed = 0, _REST  # of the calls that are left alone, the first are remembered for `save()`
        self.family: Family | None = None
        self.seen: dict[str, Version] = {}
        self.job: _background.Job | None = None
        #: Compiles for the option ``input_spec``, once: at the decoration of an instance, else before its first call.
        self._ahead = [] if method.ahead is None else [method.ahead]
        self._deferrable = True  # can another thread be given the modes that a capture depends on?
        self.met = Met()
        self._met_elsewhere: set[Any] = set()
        #: How often each route was bound anew: a changed weight costs one of each, whatever their number.
        self.rebinds: Counter[tuple[int, str]] = Counter()
        self.fired: Counter[str] = Counter()  # what had changed where a program could no longer be used
        self._asked = (False, False, False)  # does the method ask whether gradients are on, for settings, of tensors?
        self._facts: Callable[[Any], Any] | None = None
        self.writes = 0
        self.changes = 0  # of the versions that it has a program for
        self._binding, self._patient = threading.Lock(), True
        self.in_vain: set[Any] = set()  # dimensions that were to vary, and that the tracer fixed
        self._store: Any = None
        self._sealed: Callable[[], bool] = lambda: True
        self._resets = 0
        self._signatures = Signatures(frontend)
        self._key = self._signatures.key
        self._adopt_parameters()
        self._transparent, self._ambient, self._grad = frontend.transparent, frontend.ambient, frontend.grad_enabled
        self._always = method.options.verify == "always"
        self._ranged = _trt.asked(method.options)
        _STATES.add(self)

    def _adopt_parameters(self) -> None:
        self.parameters = parameters = self.method.parameters
        self._bind, self._defaults = parameters.bind, parameters.defaults

    def call(self, owner: tuple[Any, ...], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Answer one call; `owner` is (instance,) or ()."""
        if capturing():
            return self.method.function(*owner, *args, **kwargs)
        stance = _chosen() or _look_up(_STANCE)
        if self.rest > 0 and stance != _FAILING and stance != _EAGERLY:  # below zero where threads met
            self.rest -= 1
            if self.heed > 0 and not self._transparent():
                self.heed -= 1
                if self.meet(args, kwargs):
                    self.rest = 0
                    return self.call(owner, args, kwargs)
            self.counters.left_alone += 1
            return self.method.function(*owner, *args, **kwargs)
        if self._transparent():
            return self.method.function(*owner, *args, **kwargs)
        if stance == _EAGERLY:
            return self._eagerly(owner, args, kwargs, "the stance is 'eager'", "", "busy")
        values = self._bind(args, kwargs)
        if values is None:
            return self.method.function(*owner, *args, **kwargs)  # a wrong call: the method's own error
        tensors: list[Any] = []
        try:
            key: Any = (self._key(values, tensors, self._defaults), self._ambient())
            if len(tensors) > 1 and len({*map(id, tensors)}) < len(tensors):  # one tensor passed more than once
                key = (*key, tuple(map(list(map(id, tensors)).index, map(id, tensors))))
            if self._facts is not None:
                key = (*key, *map(self._facts, tensors))
            if any(map(_ATTRIBUTES, tensors)):
                key = (*key, self._carried(tensors))
            route = self.memo.get(key)
        except (Unsupported, TypeError, RuntimeError) as fault:  # the last of tensors that have no sizes
            if self.frontend.tracing():
                return self.method.function(*owner, *args, **kwargs)
            return self._eagerly(owner, args, kwargs, self._named(values, fault), "Pass tensors and plain values")
        if route is None or not route.valid():
            if route is not None and not route.eager:
                self.fired[route.broken()] += 1  # type: ignore[union-attr]
            route, result = self._miss(owner, args, kwargs, values, key)
            if result is not NOTHING:
                if route is not None and route.eager and route.kind == "slower":
                    self._leave_alone()
                return result
        else:
            try:
                self.memo.move_to_end(key)
            except KeyError:  # another thread let go of it meanwhile; this call has its route
                _log.debug("%s: a route was dropped while it was used", self.method.name)
        if route.eager:
            return self._eagerly(owner, args, kwargs, route.reason, route.remedy, route.kind)  # type: ignore[union-attr]
        ints = [v for v in values if type(v) is int] if route.ints else ()  # type: ignore[union-attr]
        if route.ints and len(ints) != len(route.held.version.ints):  # type: ignore[union-attr]
            ints = self._signatures.layout(values, self.parameters.names, self._defaults).ints
        if route.handed_back and not all(tensors[i].is_contiguous() for i in route.handed_back):  # type: ignore[union-attr]
            return self._eagerly(owner, args, kwargs, "a result that is an argument has gaps in its memory", "", "busy")
        if self._always:
            return self._compared(owner, args, kwargs, values, route)
        try:
            if self._grad() and _gradients.wanted(self.frontend, tensors, route):
                call = _gradients.Eagerly(self, owner, values, (len(args), kwargs))
                result = _gradients.differentiable(call, route, tensors, ints)
            else:
                result = route.run(tensors, ints)  # type: ignore[union-attr]
        except EngineError as fault:
            result = self.method.function(*owner, *args, **kwargs)  # where it fails as well, the call is at fault
            # An engine may find only at a run that a weight was changed; the next call binds it anew.
            self.note(str(fault), "", "build" if route.valid() else "busy")
            return result
        except Exception as fault:  # an argument is not what its signature tells: a sparse tensor, where one was dense
            result = self.method.function(*owner, *args, **kwargs)
            self.note(f"its static model cannot be given these arguments: {type(fault).__name__}: {fault}", "", "build")
            return result
        self.counters.hits += 1
        return result

    def meet(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
        """Remember a call that somebody else answers, such as the framework's own training path.

        Is it the first one of its signature, and unlike those for which the eager method is the faster one?
        """
        values = self._bind(args, kwargs)
        try:
            key = None if values is None else self._key(values, [], self._defaults)
            if key is None or key in self._met_elsewhere:
                return False
            layout = self._signatures.layout(values, self.parameters.names, self._defaults)
            specs = tuple(TensorSpec(*self._spec(t)) for t in layout.tensors)
        except (Unsupported, TypeError, RuntimeError) as fault:  # the last of tensors that have no sizes
            _log.debug("%s: a call is not remembered: %s", self.method.name, fault)
            return False
        if len(self._met_elsewhere) < _MEMO:
            self._met_elsewhere.add(key)
        call = Call(layout.tree, specs, tuple(layout.ints), (), tuple(layout.places), tuple(layout.int_places))
        self.met.note(call, (len(args), frozenset(kwargs)))
        kind, scale = (call.tree, [t.dtype for t in call.tensors]), _choice.scale(call)
        losers = [held.version for (_, at), (held, _) in list(self.slower.items()) if at == scale]
        return all((each.tree, [t.dtype for t in each.tensors]) != kind for each in losers)

    def _named(self, values: Any, fault: Exception) -> str:
        """What cannot be part of a signature, by the name of its parameter, which no key has."""
        try:
            self._signatures.layout(values, self.parameters.names, self._defaults)
        except Unsupported as named:
            return str(named)
        return str(fault)

    def _compared(self, owner: Any, args: Any, kwargs: Any, values: Any, route: Any) -> Any:
        """The eager result, and a fallback counted where the program's differs from it (``verify="always"``)."""
        result = self.method.function(*owner, *args, **kwargs)
        layout = self._signatures.layout(values, self.parameters.names, self._defaults)
        options = self.method.options
        try:
            _compile.check(self.frontend, route, layout.tensors, layout.ints, result, options)
        except (_verify.Disagreement, EngineError) as fault:
            if not route.valid():  # another thread changed a weight after the eager method had read it
                return result
            self.counters.fall_back(str(fault))
            if options.fallback == "error":
                raise BackendError(self.method.name, str(fault)) from fault
            self.method.warn(str(fault), "")
        except _verify.Inconclusive as fault:
            _log.debug("%s: verification was inconclusive: %s", self.method.name, fault)
        else:
            self.counters.hits += 1
        return result

    def _eagerly(
        self, owner: tuple[Any, ...], args: Any, kwargs: Any, reason: str, remedy: str, kind: str = "capture"
    ) -> Any:
        self.note(reason, remedy, kind)
        return self.method.function(*owner, *args, **kwargs)

    def note(self, reason: str, remedy: str, kind: str) -> None:
        """Count and log that the eager method answers. Raises CaptureError or BackendError under fallback="error"."""
        self.counters.fall_back(reason)
        if kind == "slower":
            self._leave_alone()
        elif kind != "busy":
            if self.method.options.fallback == "error":
                from hybrid_infer import _troubleshooting

                error = BackendError if kind == "build" else CaptureError
                raise error(self.method.name, reason, _troubleshooting.remedy(reason, remedy))
            self.method.warn(reason, remedy)

    def _leave_alone(self) -> None:
        """Look at no call for a while, unless an engine serves calls of another scale."""
        self.rest = 0 if self.routes else _REST

    def _miss(
        self, owner: tuple[Any, ...], args: Any, kwargs: Any, values: Any, key: Any, errand: Errand = _CALL
    ) -> tuple[Any, Any]:
        """A route for a call that none answers, or its result if the eager method had to be run for it anyhow."""
        if self.method.redefined() or self.parameters is not self.method.parameters:
            self._adopt_parameters()
            return None, NOTHING if errand.ahead else self.call(owner, args, kwargs)
        try:
            layout = self._signatures.layout(values, self.parameters.names, self._defaults)
            for tensor, place in zip(layout.tensors, layout.places, strict=True):
                refused = self.frontend.refuse(tensor)
                if refused:
                    raise Unsupported(f"{place} ({refused})", tensor)
        except Unsupported as fault:
            return None, self._eagerly(owner, args, kwargs, str(fault), "Pass tensors and plain values")
        carried = self._carried(layout.tensors)
        if carried:
            subject = self._subject(owner, layout)
            read = sorted(subject.mentioned(carried))
            if read:
                reason = f"it may read the attribute {read[0]!r} of a tensor that it is given, which no signature holds"
                unread = Eager(reason, subject.code_unchanged, remedy="Pass it as an argument")
                self.remember(key, unread)
                return unread, NOTHING
        call = Call(
            layout.tree,
            tuple(TensorSpec(*self._spec(t)) for t in layout.tensors),
            tuple(layout.ints),
            (
                *(map(str, key[1]) if isinstance(key[1], tuple) else (str(key[1]),)),
                *(str(self._facts(tensor)) for tensor in layout.tensors if self._facts is not None),
            ),
            tuple(layout.places),
            tuple(layout.int_places),
        )
        opens = errand.open
        self.met.note(call, (len(args), frozenset(kwargs)))
        chooses = self._chooses(call)
        scale = _choice.scale(call) if chooses else 0
        for (_, at), (held, loser) in list(self.slower.items()):
            if at == scale and held.version.fits(call) and held.version.varies(opens) and loser.valid():
                self.remember(key, loser)
                return loser, NOTHING
        ready = [
            r for r in list(self.routes.values())
            if scale in r.scales and r.held.version.fits(call) and r.held.version.varies(opens) and r.valid()
            and r.serves(call)
        ]  # fmt: skip
        if ready:  # a size or an integer that a bound version serves
            route = max(ready, key=lambda r: (r.held.version.width, r.ranged))
            if route.ranged or not self._ranged:
                self.remember(key, route)
                return route, NOTHING
        method = self.method
        stance = _stance.current()
        background = stance == _stance.BACKGROUND or (stance == _stance.DEFAULT and method.options.background)
        if not errand.ahead and stance != _stance.FAIL and self.compile_ahead(owner, background):
            return self._miss(owner, args, kwargs, values, key)
        if background and self._deferrable and not errand.ahead:
            return self._defer(owner, args, kwargs, values, layout)
        subject = self._subject(owner, layout)
        if self._ask(subject):
            if errand.ahead:
                return self._miss(owner, args, kwargs, values, self.key(values), errand)
            return None, self.call(owner, args, kwargs)
        store = self._choose_store(subject)
        if self._resets > _RESETS:
            reason = f"what has no fingerprint keeps changing: {subject.opaque[0]}"
            self._resets -= 1
            return Eager(reason, for_a_while(_PAUSE)), NOTHING
        frozen = stance == _stance.FAIL
        live = method.options.weights == "live" or (
            method.options.weights == "auto" and max(self.rebinds.values(), default=0) >= _REBINDS and not frozen
        )
        request = Request(
            self.frontend, method.options, method.function, method.name, self.parameters, layout, call, subject, store,
            live, (len(args), frozenset(kwargs)), frozen, errand, chooses=chooses,
        )  # fmt: skip
        shown = contextlib.nullcontext() if errand.forked else _progress.working(f"preparing {method.name}")
        with shown:
            route, result = resolve(self, request, Invocation(method.function, owner, args, kwargs, values))
        if route is not None:
            self.remember(key, route)
        return route, result

    def _chooses(self, call: Call) -> bool:
        """Is the engine for such a call chosen by measurement?"""
        options = self.method.options
        if options.backend or self._always:
            return False
        device = call.tensors[0].device if call.tensors else "cpu"
        return not (_trt.names_the_order(options, device) or _cinn.names_the_order(options, device))

    def _subject(self, owner: tuple[Any, ...], layout: Any) -> Subject:
        method = self.method
        return Subject(
            self.frontend, method.function, owner[0] if owner else None, bool(owner), method.name,
            method.options.cache_key, layout.kinds,
        )  # fmt: skip

    def compile_ahead(self, owner: tuple[Any, ...], background: bool) -> bool:
        """Compile what ``input_spec`` asks for, where that has not been done; by one of the threads that call this."""
        try:
            compile_ahead = self._ahead.pop()
        except IndexError:
            return False
        compile_ahead(self, owner, background)
        return True

    @contextlib.contextmanager
    def binding(self, wait: float) -> Iterator[bool]:
        """Is this the one thread that binds a program to the instance? `wait`: seconds, if none waited in vain."""
        lock = self._binding
        self._patient = held = lock.acquire(timeout=wait if self._patient else 0.0)
        try:
            yield held
        finally:
            if held:
                lock.release()

    def _ask(self, subject: Subject) -> bool:
        """Does the code ask for more than was known? From now on each answer to that makes a version of its own."""
        asked = (subject.asks_for_gradients(), subject.settings is not None, subject.facts is not None)
        if asked == self._asked:
            return False
        self._asked, self._facts = asked, subject.facts
        ambient, reads = self.frontend.ambient, [self._grad] * asked[0] + [subject.settings] * asked[1]
        self._ambient = (lambda: (ambient(), *(read() for read in reads))) if reads else ambient
        return True

    def _defer(self, owner: Any, args: Any, kwargs: Any, values: Any, layout: Any) -> tuple[Any, Any]:
        """Answer eagerly, and have the call compiled in the background; one call of an instance at a time."""
        job = self.job
        if job is not None and job.pending():
            return Eager(_background.REASON, job.pending, kind="busy"), NOTHING
        # The copies are made first, since the method may write to its arguments; and a call that fails is at fault.
        job = _background.Job(self, owner, (len(args), frozenset(kwargs)), self.keyed(values), layout, _LATER)
        result = self.method.function(*owner, *args, **kwargs)
        route = Eager(_background.REASON, job.pending, kind="busy")
        self.job = job
        self.remember(job.key, route)
        self.note(route.reason, "", route.kind)
        _background.submit(job)
        return route, result

    def compile(
        self, owner: tuple[Any, ...], args: Any, kwargs: Any, values: Any, key: Any, errand: Errand,
        ambient: Callable[[], Any] | None = None,
    ) -> Any:  # fmt: skip
        """The route for a call that nobody waits for, left where the next call finds it; None if there is none yet.

        `ambient` is what the key was made with, where that may be some time ago.
        """
        self._deferrable = (ambient or self._ambient)() == key[1]
        if not self._deferrable:
            _log.info("%s is compiled at a call: no other thread can be given this one's modes", self.method.name)
            return None
        if ambient not in (None, self._ambient):  # meanwhile the code was found to ask for more
            key = self.key(values)
        return self._miss(owner, args, kwargs, values, key, errand)[0]

    def key(self, values: Sequence[Any]) -> Any:
        """What the memo looks for in a call with these values. Raises Unsupported."""
        tensors: list[Any] = []
        key: tuple[Any, ...] = (self._key(values, tensors, self._defaults), self._ambient())
        numbers = list(map(id, tensors))
        if len(set(numbers)) < len(numbers):
            key = (*key, tuple(map(numbers.index, numbers)))
        if self._facts is not None:
            key = (*key, *map(self._facts, tensors))
        return (*key, self._carried(tensors)) if any(map(_ATTRIBUTES, tensors)) else key

    def _carried(self, tensors: Sequence[Any]) -> tuple[str, ...]:
        """The names of attributes that the program has given to tensors."""
        return tuple(sorted({name for tensor in tensors for name in tensor.__dict__} - self.frontend.own_attributes))

    def keyed(self, values: Sequence[Any]) -> tuple[Any, Callable[[], Any]]:
        """The same, and what the ambient state in it was read with, which another thread may replace meanwhile."""
        while True:
            ambient, key = self._ambient, self.key(values)
            if ambient is self._ambient:
                return key, ambient

    def layout(self, values: Sequence[Any]) -> Any:
        """The structure and leaves of the values of a call. Raises Unsupported."""
        return self._signatures.layout(values, self.parameters.names, self._defaults)

    def _spec(self, tensor: Any) -> tuple[str, tuple[int, ...], str]:
        found: tuple[str, tuple[int, ...], str] = self.frontend.describe(tensor)
        return found

    def _choose_store(self, subject: Subject) -> Any:
        """The disk; for what must stay off it, a store in memory that lives as long as this state."""
        if self.method.options.cache_static_model and not subject.opaque:
            return self.method.store()
        if self._store is None or (subject.opaque and not self._sealed()):
            from hybrid_infer.cache import MemoryStore

            self._store = MemoryStore()  # and a new one where what no key can tell apart was changed
            self._sealed, self._resets = subject.code_unchanged, self._resets + 1
            if subject.opaque:
                why = "; ".join(subject.opaque[:3])
                text, name = "%s is compiled anew by each process, not kept on disk: %s", self.method.name
                tell(logging.INFO, "kept_off_disk", name, text, name, why, reason=why)
        return self._store

    def remember(self, key: Any, route: Any) -> None:
        """Have the calls with this key answered by `route`."""
        memo = self.memo
        memo.pop(key, None)
        memo[key] = route
        if len(memo) > _MEMO:
            try:
                memo.popitem(last=False)
            except KeyError:  # another thread emptied it
                _log.debug("%s: routes were dropped while one was added", self.method.name)

    def release(self) -> None:
        """Let go of every program and of what is known of versions: the next call takes them from the store.

        Calls in flight keep theirs until they end. Versions that are in no store stay known.
        """
        self.memo, self.routes, self.seen, self.slower, self.rest = OrderedDict(), {}, {}, {}, 0
        self.changes += 1
        family = self.family
        if family is not None and not any(h.entry is None and h.version.graph for h in list(family.held)):
            self.family = None


_STATES: weakref.WeakSet[State] = weakref.WeakSet()
_INHERITED: list[Any] = []


def _enter_child() -> None:
    """A forked child gets programs of its own; the parent's are kept untouched for ever: dropping one would hang."""
    _tracing.CAPTURING = threading.Lock()
    _family.renew_after_fork()
    _router.renew_after_fork()
    for state in list(_STATES):
        _INHERITED.append((state.memo, state.routes))
        state.memo, state.routes, state.job = OrderedDict(), {}, None
        state._binding = threading.Lock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_enter_child)
