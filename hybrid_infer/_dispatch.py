"""The hit path: signature -> route -> run. One state per method and instance."""

from __future__ import annotations

import contextlib
import functools
import logging
import os
import threading
import weakref
from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from hybrid_infer import (
    _background,
    _choice,
    _compile,
    _differences,
    _family,
    _forked,
    _gradients,
    _probes,
    _router,
    _stance,
    _verify,
)
from hybrid_infer._choice import EAGER
from hybrid_infer._compile import CAPTURING, Built, Errand, Outcome, Request
from hybrid_infer._errors import BackendError, CaptureError, EngineError, StanceError
from hybrid_infer._family import Family, Held
from hybrid_infer._met import Met
from hybrid_infer._route import Compiled, Eager, for_a_while
from hybrid_infer._signature import Signatures, Unsupported
from hybrid_infer._subject import Subject
from hybrid_infer._types import TensorSpec
from hybrid_infer._version import Call, Version

_log = logging.getLogger("hybrid_infer")

_MEMO = 256  # signatures of one instance that are kept ready
_WAIT = 1.0  # seconds that a call waits for somebody else's capture or build before it answers eagerly
_AHEAD = 60.0  # the same where no call waits
_RETRY = 0.2  # seconds after which such a call looks again
_REBINDS = 3  # changes of weights after which they are fed as inputs instead of bound
_WRITES = 3  # captures found to write to the program's state, after which the next one waits
_RESETS = 8  # changes of what has no fingerprint after which a method is not captured anew at each
_PAUSE = 60.0  # seconds for which it waits
_ATTEMPTS = 3  # look-ups of one call, each of which may set a damaged entry aside
_TIES = 3  # inconclusive verifications after which a plan is taken
_REST = 64  # calls of a method that no engine makes faster, for which it is left alone

_NOTHING: Any = object()
_CALL = Errand()
_LATER = Errand(ahead=True, forked=True)  # for a call that the eager method has answered
_chosen, _look_up, _STANCE, _EAGERLY = _stance.chosen, _stance.look_up, _stance.STANCE, _stance.EAGERLY
_BUSY = threading.local()


def capturing() -> bool:
    """Is this thread inside a capture of ours, or in the eager call that one is compared with?"""
    return getattr(_BUSY, "capturing", False)


@contextlib.contextmanager
def _transparent() -> Iterator[None]:
    """Decorated methods that are called inside run as if they were not: one that calls itself waits for no lock."""
    before, _BUSY.capturing = capturing(), True
    try:
        yield
    finally:
        _BUSY.capturing = before


@contextlib.contextmanager
def exclusively() -> Iterator[None]:
    """Capture by itself alone in this process; on this thread, decorated methods are their functions meanwhile."""
    with CAPTURING, _transparent():
        yield


class State:
    """What a method knows about one instance. ``owner`` is passed to each call and never kept."""

    def __init__(self, method: Any, frontend: Any) -> None:
        self.method, self.frontend = method, frontend
        self.counters = method.counters
        self.memo: OrderedDict[Any, Compiled | Eager] = OrderedDict()
        self.routes: dict[tuple[int, str], Compiled] = {}  # by version and chosen engine
        self.slower: dict[tuple[int, int], Held] = {}  # versions that lose to the eager method, by scale of the call
        self.rest = 0
        self.family: Family | None = None
        self.seen: dict[str, Version] = {}
        self.job: _background.Job | None = None
        #: Compiles for the option ``input_spec``, once: at the decoration of an instance, else before its first call.
        self.ahead: Callable[[State, tuple[Any, ...], bool], None] | None = method.ahead
        self._deferrable = True  # can another thread be given the modes that a capture depends on?
        self.met = Met()
        self.rebinds = 0
        self.ties = 0
        self._asked = (False, False, False)  # does the method ask whether gradients are on, for settings, of tensors?
        self._facts: Callable[[Any], Any] | None = None
        self.writes = 0
        self.changes = 0  # of the versions that it has a program for
        self._in_vain: set[Any] = set()  # dimensions that were to vary, and that the tracer fixed
        self._store: Any = None
        self._sealed: Callable[[], bool] = lambda: True
        self._resets = 0
        self._signatures = Signatures(frontend)
        self._key = self._signatures.key
        self._adopt_parameters()
        self._transparent, self._ambient, self._grad = frontend.transparent, frontend.ambient, frontend.grad_enabled
        self._always = method.options.verify == "always"
        self._chooses = not method.options.backend and not self._always
        _STATES.add(self)

    def _adopt_parameters(self) -> None:
        self.parameters = parameters = self.method.parameters
        self._bind, self._defaults = parameters.bind, parameters.defaults

    def call(self, owner: tuple[Any, ...], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Answer one call; `owner` is (instance,) or ()."""
        if self._transparent() or capturing():
            return self.method.function(*owner, *args, **kwargs)
        if (_chosen() or _look_up(_STANCE)) == _EAGERLY:
            return self._eagerly(owner, args, kwargs, "the stance is 'eager'", "", "busy")
        if self.rest:
            self.rest -= 1
            self.counters.fall_back(_router.SLOWER)
            return self.method.function(*owner, *args, **kwargs)
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
            route = self.memo.get(key)
        except (Unsupported, TypeError) as fault:
            if self.frontend.tracing():
                return self.method.function(*owner, *args, **kwargs)
            return self._eagerly(owner, args, kwargs, self._named(values, fault), "Pass tensors and plain values")
        if route is None or not route.valid():
            route, result = self._miss(owner, args, kwargs, values, key)
            if result is not _NOTHING:
                return result
        else:
            try:
                self.memo.move_to_end(key)
            except KeyError:  # another thread let go of it meanwhile; this call has its route
                _log.debug("%s: a route was dropped while it was used", self.method.name)
        if route.eager:
            return self._eagerly(owner, args, kwargs, route.reason, route.remedy, route.kind)  # type: ignore[union-attr]
        ints = [v for v in values if type(v) is int] if route.ints else ()  # type: ignore[union-attr]
        if ints and len(ints) != len(route.held.version.ints):  # type: ignore[union-attr]
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
            self._note(str(fault), "", "build")
            return result
        self.counters.hits += 1
        return result

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
        self._note(reason, remedy, kind)
        return self.method.function(*owner, *args, **kwargs)

    def _note(self, reason: str, remedy: str, kind: str) -> None:
        """Count and log that the eager method answers. Raises CaptureError or BackendError under fallback="error"."""
        self.counters.fall_back(reason)
        if kind == "slower":
            self.rest = 0 if self.routes else _REST
        elif kind != "busy":
            if self.method.options.fallback == "error":
                error = BackendError if kind == "build" else CaptureError
                raise error(self.method.name, reason, remedy)
            self.method.warn(reason, remedy)

    def _miss(
        self, owner: tuple[Any, ...], args: Any, kwargs: Any, values: Any, key: Any, errand: Errand = _CALL
    ) -> tuple[Any, Any]:
        """A route for a call that none answers, or its result if the eager method had to be run for it anyhow."""
        if self.method.redefined() or self.parameters is not self.method.parameters:
            self._adopt_parameters()
            return None, _NOTHING if errand.ahead else self.call(owner, args, kwargs)
        try:
            layout = self._signatures.layout(values, self.parameters.names, self._defaults)
            for tensor, place in zip(layout.tensors, layout.places, strict=True):
                refused = self.frontend.refuse(tensor)
                if refused:
                    raise Unsupported(f"{place} ({refused})", tensor)
        except Unsupported as fault:
            return None, self._eagerly(owner, args, kwargs, str(fault), "Pass tensors and plain values")
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
        scale = _choice.scale(call) if self._chooses else 0
        slower = [held.version for (_, s), held in list(self.slower.items()) if s == scale]
        if any(version.fits(call) and version.varies(opens) for version in slower):
            loser = _eager_by_choice()
            self.remember(key, loser)
            return loser, _NOTHING
        ready = [
            r for r in list(self.routes.values())
            if scale in r.scales and r.held.version.fits(call) and r.held.version.varies(opens) and r.valid()
        ]  # fmt: skip
        if ready:  # a size or an integer that a bound version serves
            route = max(ready, key=lambda r: r.held.version.width)
            self.remember(key, route)
            return route, _NOTHING
        method = self.method
        stance = _stance.current()
        background = stance == _stance.BACKGROUND or (stance == _stance.DEFAULT and method.options.background)
        if self.ahead is not None and not errand.ahead and stance != _stance.FAIL:
            compile_ahead, self.ahead = self.ahead, None
            compile_ahead(self, owner, background)
            return self._miss(owner, args, kwargs, values, key)
        if background and self._deferrable and not errand.ahead:
            return self._defer(owner, args, kwargs, key, layout)
        subject = Subject(
            self.frontend, method.function, owner[0] if owner else None, bool(owner), method.name,
            method.options.cache_key, layout.kinds,
        )  # fmt: skip
        if self._ask(subject):
            if errand.ahead:
                return self._miss(owner, args, kwargs, values, self.key(values), errand)
            return None, self.call(owner, args, kwargs)
        store = self._choose_store(subject)
        if self._resets > _RESETS:
            reason = f"what has no fingerprint keeps changing: {subject.opaque[0]}"
            self._resets -= 1
            return Eager(reason, for_a_while(_PAUSE)), _NOTHING
        frozen = stance == _stance.FAIL
        live = method.options.weights == "live" or (
            method.options.weights == "auto" and self.rebinds >= _REBINDS and not frozen
        )
        request = Request(
            self.frontend, method.options, method.function, method.name, self.parameters, layout, call, subject, store,
            live, (len(args), frozenset(kwargs)), frozen, errand,
        )  # fmt: skip
        route, result = self._resolve(request, owner, args, kwargs)
        if route is not None:
            self.remember(key, route)
        return route, result

    def _ask(self, subject: Subject) -> bool:
        """Does the code ask for more than was known? From now on each answer to that makes a version of its own."""
        asked = (subject.asks_for_gradients(), subject.settings is not None, subject.facts is not None)
        if asked == self._asked:
            return False
        self._asked, self._facts = asked, subject.facts
        ambient, reads = self.frontend.ambient, [self._grad] * asked[0] + [subject.settings] * asked[1]
        self._ambient = (lambda: (ambient(), *(read() for read in reads))) if reads else ambient
        return True

    def _defer(self, owner: Any, args: Any, kwargs: Any, key: Any, layout: Any) -> tuple[Any, Any]:
        """Answer eagerly, and have the call compiled in the background; one call of an instance at a time."""
        job = self.job
        if job is not None and job.pending():
            return Eager(_background.REASON, job.pending, kind="busy"), _NOTHING
        # The copies are made first, since the method may write to its arguments; and a call that fails is at fault.
        job = _background.Job(self, owner, (len(args), frozenset(kwargs)), key, layout, _LATER)
        result = self.method.function(*owner, *args, **kwargs)
        route = Eager(_background.REASON, job.pending, kind="busy")
        self.job = job
        self.remember(key, route)
        self._note(route.reason, "", route.kind)
        _background.submit(job)
        return route, result

    def compile(
        self, owner: tuple[Any, ...], args: Any, kwargs: Any, values: Any, key: Any, errand: Errand
    ) -> Any:
        """The route for a call that nobody waits for, left where the next call finds it; None if there is none yet."""
        self._deferrable = self._ambient() == key[1]
        if not self._deferrable:
            _log.info("%s is compiled at a call: no other thread can be given this one's modes", self.method.name)
            return None
        return self._miss(owner, args, kwargs, values, key, errand)[0]

    def key(self, values: Sequence[Any]) -> Any:
        """What the memo looks for in a call with these values. Raises Unsupported."""
        tensors: list[Any] = []
        key: tuple[Any, ...] = (self._key(values, tensors, self._defaults), self._ambient())
        numbers = list(map(id, tensors))
        if len(set(numbers)) < len(numbers):
            key = (*key, tuple(map(numbers.index, numbers)))
        return key if self._facts is None else (*key, *map(self._facts, tensors))

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
                _log.info("%s is compiled anew by each process, not kept on disk: %s", self.method.name, why)
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

    def _resolve(self, request: Request, owner: Any, args: Any, kwargs: Any) -> tuple[Any, Any]:
        """A route by looking up or capturing; again where what was found turns out to be damaged."""
        from hybrid_infer.cache import DamagedEntry

        for _ in range(_ATTEMPTS):
            try:
                return self._find_or_capture(request, owner, args, kwargs)
            except DamagedEntry as fault:
                _log.debug("%s: %s", self.method.name, fault)
        reason = "what the cache holds for it can be neither used nor moved"
        return Eager(reason, for_a_while(_PAUSE), kind="busy"), _NOTHING

    def _find_or_capture(self, request: Request, owner: Any, args: Any, kwargs: Any) -> tuple[Any, Any]:
        self.family = family = _family.family(request.store, request.subject.key.hex)
        scope = functools.partial(_compile.scope, request)
        held = family.find(request.call, request.subject, scope, request.errand.open)
        if held is None:
            family.refresh(request.store)
            held = family.find(request.call, request.subject, scope, request.errand.open)
        if held is not None:
            return self._use(request, family, held, owner, args, kwargs)
        if _log.isEnabledFor(logging.DEBUG):
            _log.debug("%s: %s", self.method.name, _why(request, family))
        hooked = request.subject.hooked()
        if hooked is not None:
            return Eager(hooked[0], hooked[1], remedy="Remove the hook, or decorate a method below it"), _NOTHING
        full, widening = len(self.seen) >= self.method.options.max_versions, _compile.varying(request, family)
        if full and (not any(widening) or widening in self._in_vain):
            return self._too_many(request, family), _NOTHING
        if request.frozen:
            raise StanceError(self.method.name, _why(request, family), _WARM)
        wait = _AHEAD if request.errand.ahead else _WAIT if family.patient else 0.0
        with request.store.lock(family.key, wait) as alone:
            if alone:
                family.patient = True
                family.refresh(request.store)
                held = family.find(request.call, request.subject, scope, request.errand.open)
                if held is not None:
                    return self._use(request, family, held, owner, args, kwargs)
                outcome = _capture(request, family, wait)
                if outcome is not None:
                    if full and outcome.version.graph and not any(map(outcome.version.covers, self.seen.values())):
                        self._in_vain.add(widening)
                        return self._too_many(request, family), _NOTHING
                    return self._adopt(request, family, outcome, owner, args, kwargs)
        family.patient = False
        reason = "another thread or process is compiling this method"
        return Eager(reason, for_a_while(_RETRY), kind="busy"), _NOTHING

    def _adopt(
        self, request: Request, family: Family, outcome: Outcome, owner: Any, args: Any, kwargs: Any
    ) -> tuple[Any, Any]:
        held = Held(outcome.version, None, disk=False)
        version = outcome.version
        if version.kind == "copy":  # before anything was read: nothing would tell when it is out of date
            refused = Eager(version.reason, for_a_while(_PAUSE), remedy=version.remedy, kind=version.kind)
            return refused, _NOTHING
        if version.kind == "capture" and version.reason and request.errand.open:  # other sizes may do
            return Eager(version.reason, lambda: False, remedy=version.remedy), _NOTHING
        if version.reason:
            result = _NOTHING
            # If the eager method fails as well, the call is at fault, not the method.
            if version.kind == "capture" and not request.errand.ahead:
                with _transparent():
                    result = self.method.function(*owner, *args, **kwargs)
            self._fail(request, family, held)
            if result is not _NOTHING:
                self._note(version.reason, version.remedy, version.kind)
            return self._given_up(request, held), result
        self.counters.count("captures")
        return self._use(request, family, held, owner, args, kwargs, outcome)

    def _given_up(self, request: Request, held: Held) -> Eager:
        """The route after a failed capture: a method whose state grows at each call would be traced at each call."""
        refused = self._refused(request, held)
        if refused.kind != "writes":
            return refused
        self.writes += 1
        if self.writes < _WRITES:
            return refused
        code, pause = request.subject.code_unchanged, for_a_while(_PAUSE)
        return Eager(refused.reason, lambda: pause() and code(), remedy=refused.remedy, kind=refused.kind)

    def _fail(self, request: Request, family: Family, held: Held) -> None:
        family.add(held, "")
        if not request.subject.opaque:
            request.store.remember_failure(family.key, held.version.to_meta())

    def _refused(self, request: Request, held: Held) -> Eager:
        version = held.version
        unread = request.subject.attributes.arm(version.reads, request.subject.census, set())
        code = request.subject.code_unchanged
        return Eager(version.reason, lambda: unread() and code(), remedy=version.remedy, kind=version.kind)

    def _use(
        self, request: Request, family: Family, held: Held, owner: Any, args: Any, kwargs: Any,
        outcome: Outcome | None = None,
    ) -> tuple[Any, Any]:  # fmt: skip
        """Bind a version to the instance; verify it if that has not been done on this machine."""
        from hybrid_infer.cache import DamagedEntry

        if held.version.reason:
            return self._refused(request, held), _NOTHING
        choice = _router.known(request, held) if self._chooses else None
        if choice is not None and choice.name == EAGER:
            self._came_from_disk(held)
            return self._by_choice(request, held), _NOTHING
        scale = _choice.scale(request.call) if self._chooses else 0
        chosen = "" if choice is None else choice.name
        ready = self.routes.get((id(held), chosen))
        if ready is not None and ready.held is held and ready.live == request.live:
            again = ready if ready.valid() else ready.renewed(request.subject)
            if again is not None:
                again.scales.add(scale)
                self.routes[id(held), chosen] = again
                return again, _NOTHING
        graph = outcome.graph if outcome else None
        try:
            built = _compile.build(request, held, graph, chosen)
        except EngineError as fault:
            return self._unserved(request, family, held, str(fault))
        except DamagedEntry:
            family.drop(held)
            raise
        route = _compile.bind(request, held, family, built)
        result, comparable = _NOTHING, True
        verify = self.method.options.verify
        if (not built.verified and verify != "off") or (verify == "first" and ready is None):
            try:
                with _transparent():
                    result = self.method.function(*owner, *args, **kwargs)
            except RuntimeError as fault:
                if not self.frontend.lacks_kernel(fault):
                    raise
                comparable = False
                _log.info("%s: not compared with the eager method, which fails for this element type", self.method.name)
            try:
                if result is not _NOTHING:
                    self._check(request, route, result)
            except _verify.Inconclusive as fault:
                self.ties += 1
                _log.debug("%s: verification was inconclusive: %s", self.method.name, fault)
                if self.ties < _TIES:
                    return None, result
            except (_verify.Disagreement, EngineError) as fault:
                moved = not route.valid()
                route.close()
                if not moved:
                    return self._unserved(request, family, held, str(fault), result)
                # Another thread changed a weight meanwhile: each result is right for its moment. Verified next time.
                _log.debug("%s: changed while it was verified: %s", self.method.name, fault)
                if outcome is not None:
                    self._publish(request, family, held, outcome)
                return None, result
        if built.fresh:
            self.counters.count("builds")
        if self._chooses and choice is None and comparable and not request.frozen:
            choice, built, route = self._choose(request, held, family, built, route, graph, owner, args, kwargs, result)
        if outcome is not None:
            self._publish(request, family, held, outcome)
        else:
            self._came_from_disk(held)
        if choice is not None:
            _router.remember(request, held, choice)
            if choice.name == EAGER:
                return self._by_choice(request, held), result
            chosen = choice.name
        _compile.publish_plan(request, held, built)
        self.counters.count("bindings")
        if ready is not None:
            self.rebinds += 1
            self._drop(ready)
        self._drop_covered(held)
        route.mark = held.hold()
        route.scales.add(scale)
        self.routes[id(held), chosen] = route
        self.seen[held.version.identity] = held.version
        self.changes += 1
        return route, result

    def _came_from_disk(self, held: Held) -> None:
        if held.disk:
            held.disk = False
            self.counters.count("disk_loads")

    def _drop_covered(self, by: Held) -> None:
        for route in list(self.routes.values()):
            if by.version.covers(route.held.version):
                self._drop(route)
        for place, held in list(self.slower.items()):
            if by.version.covers(held.version):
                self.slower.pop(place, None)
                self.seen.pop(held.version.identity, None)
                self.changes += 1

    def _choose(
        self, request: Request, held: Held, family: Family, built: Built, route: Compiled, graph: Any, owner: Any,
        args: Any, kwargs: Any, result: Any,
    ) -> tuple[Any, Built, Compiled]:  # fmt: skip
        """What to answer calls of this size with, by measurement; no choice where the eager method fails."""

        def verify(other: Compiled) -> None:
            if result is not _NOTHING:
                self._check(request, other, result)

        def doubt(other: Compiled) -> str:
            call = _gradients.Eagerly(self, owner, values, (len(args), kwargs))
            with self.frontend.no_grad():
                tensors, ints = request.layout.tensors, request.layout.ints
                return _probes.difference(self.frontend, other, call.again(other), tensors, ints)

        eager = functools.partial(self.method.function, *owner, *args, **kwargs)
        values = self._bind(args, kwargs)
        try:
            choice, best = _router.choose(
                request, held, family, _router.Candidate(built, route), graph, eager,
                functools.partial(self._as_called, values, request.layout), verify, doubt,
            )  # fmt: skip
        except RuntimeError as fault:
            if not self.frontend.lacks_kernel(fault):
                raise
            return None, built, route
        return choice, best.built, best.route

    def _as_called(self, values: Any, layout: Any, route: Compiled) -> Any:
        """What answers a call through a route, with all that is looked at before."""

        def answer() -> Any:
            tensors: list[Any] = []
            self._key(values, tensors, self._defaults)
            self._ambient()
            route.valid()
            return route.run(tensors, layout.ints)

        return answer

    def _by_choice(self, request: Request, held: Held) -> Eager:
        self._drop_covered(held)
        self.slower[id(held), _choice.scale(request.call)] = held
        self.seen[held.version.identity] = held.version
        return _eager_by_choice()

    @staticmethod
    def _publish(request: Request, family: Family, held: Held, outcome: Outcome) -> None:
        """Put a version that was captured where others find it; whoever is the first to build it verifies it."""
        _compile.publish(request, held, family, outcome)
        family.add(held, "" if held.entry is None else held.entry.version)
        family.drop_covered(held.version)

    def _check(self, request: Request, route: Compiled, result: Any) -> None:
        options, layout = request.options, request.layout
        _compile.check(self.frontend, route, layout.tensors, layout.ints, result, options)

    def _unserved(
        self, request: Request, family: Family, held: Held, reason: str, result: Any = _NOTHING
    ) -> tuple[Any, Any]:
        """No engine serves the version, or its result was wrong: remembered, and answered eagerly from now on."""
        failed = Held(_compile.unserved(request, held, reason), None, disk=False)
        family.drop(held)
        self._fail(request, family, failed)
        if result is not _NOTHING and not request.errand.ahead:
            self._note(reason, "", "build")
        return self._refused(request, failed), result

    def _drop(self, route: Compiled) -> None:
        """Let go of a program, and of the memo's references to it; calls in flight keep theirs."""
        for place, other in list(self.routes.items()):
            if other is route:
                del self.routes[place]
        self.seen.pop(route.held.version.identity, None)
        self.changes += 1
        for key, kept in list(self.memo.items()):
            if isinstance(kept, Compiled) and kept.program is route.program:
                self.memo.pop(key, None)

    def release(self) -> None:
        """Let go of every program and of what is known of versions: the next call takes them from the store.

        Calls in flight keep theirs until they end. Versions that are in no store stay known.
        """
        self.memo, self.routes, self.seen, self.slower, self.rest = OrderedDict(), {}, {}, {}, 0
        self.changes += 1
        family = self.family
        if family is not None and not any(h.entry is None and h.version.graph for h in list(family.held)):
            self.family = None

    def _too_many(self, request: Request, family: Family) -> Eager:
        """The route past ``max_versions``, until one of them serves the call after all or makes room."""
        last = next(reversed(self.seen.values()))
        what, remedy = _differences.of_call(last, request.call, self.parameters.names)
        reason = f"it has max_versions={len(self.seen)} static models, and this call needs another: {what}"
        subject, before = request.subject, self.changes
        unread = subject.attributes.arm(family.reads(request.call, subject), subject.census, set())
        code = subject.code_unchanged
        return Eager(reason, lambda: self.changes == before and unread() and code(), remedy=remedy)


def _eager_by_choice() -> Eager:
    """It needs no watch: the eager method is right whatever changes."""
    return Eager(_router.SLOWER, lambda: True, kind="slower")


def _capture(request: Request, family: Family, wait: float) -> Outcome | None:
    """Trace the call; in a child process if nobody waits for it. None: another thread traces for too long."""

    def trace() -> Outcome:
        with _transparent():
            return _compile.capture(request, family)

    if request.errand.forked and _forked.possible(request.frontend):
        try:
            outcome = _forked.capture(trace, CAPTURING, request.frontend)
            if _compile.usable(request, outcome):
                return outcome
        except OSError as fault:
            _log.debug("%s: captured in this process: %s", request.name, fault)
    if not CAPTURING.acquire(timeout=wait):
        return None
    try:
        return trace()
    finally:
        CAPTURING.release()


_WARM = "Run it once with this call's arguments under the stance 'default', and keep the cache directory"


def _why(request: Request, family: Family) -> str:
    """In what the nearest static model differs from what a call needs."""
    known = [h.version for h in list(family.held)]
    return _differences.of_miss(known, request.store, request.call, request.subject)


_STATES: weakref.WeakSet[State] = weakref.WeakSet()
_INHERITED: list[Any] = []


def _enter_child() -> None:
    """A forked child gets programs of its own; the parent's are kept untouched for ever: dropping one would hang."""
    global CAPTURING
    _compile.CAPTURING = CAPTURING = threading.Lock()
    _family.renew_after_fork()
    for state in list(_STATES):
        _INHERITED.append((state.memo, state.routes))
        state.memo, state.routes, state.job = OrderedDict(), {}, None


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_enter_child)
