"""The hit path: signature -> route -> run. One state per method and instance."""

from __future__ import annotations

import contextlib
import logging
import os
import weakref
from collections import Counter, OrderedDict
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from hybrid_infer import (
    _choice,
    _family,
    _fork_safe,
    _gradients,
    _own_thread,
    _serve,
    _sides,
    _stance,
    _stats,
    _stumbles,
)
from hybrid_infer._busy import NOTHING, capturing
from hybrid_infer._call_keys import ATTRIBUTES, CallKeys
from hybrid_infer._crowds import Crowds
from hybrid_infer._errors import BackendError, CaptureError
from hybrid_infer._family import Family, Held
from hybrid_infer._lulls import Lulls
from hybrid_infer._met import Met
from hybrid_infer._miss import Stores, met, miss, subject_of
from hybrid_infer._pace import Pace
from hybrid_infer._request import Errand, specs
from hybrid_infer._route import ATTRIBUTE, Answer, Compiled, Eager
from hybrid_infer._subject import Subject
from hybrid_infer._turnover import Turnover
from hybrid_infer._types import OVERLAP
from hybrid_infer._unsupported import Unsupported
from hybrid_infer._version import Call, Version
from hybrid_infer.fingerprint._walked import Walked
from hybrid_infer.state import _given, _written  # fmt: skip

if TYPE_CHECKING:
    from hybrid_infer import _background

_log = logging.getLogger("hybrid_infer")

_UNLIKE = "a wrapper around it takes other arguments than its signature says, which is that of the function inside"
_MEMO = 256  # signatures of one instance that are kept ready
_ASIDE = 4  # routes of one signature that are kept beside the one that answered last
#: Calls of a method that no engine makes faster, for which it is left alone; with the one that is looked at, a prime
#: (see `_lulls`).
_REST = 66

_chosen, _look_up, _STANCE, _EAGERLY = _stance.chosen, _stance.look_up, _stance.STANCE, _stance.EAGERLY
_FAILING = _stance.FAILING


class State(CallKeys):
    """What a method knows about one instance. ``owner`` is passed to each call and never kept."""

    def __init__(self, method: Any, frontend: Any) -> None:
        super().__init__(method, frontend)
        self.counters = method.counters
        self.memo: OrderedDict[Any, Compiled | Eager] = OrderedDict()
        #: Routes that answered before those of `memo`, whose conditions may hold again: the last ones first.
        self.aside: dict[Any, tuple[Compiled | Eager, ...]] = {}
        self.routes: dict[tuple[int, str], Compiled] = {}  # by version and chosen engine
        #: Versions that lose to the eager method, by scale of the call, and how such calls are answered.
        self.slower: dict[tuple[int, int], tuple[Held, Eager]] = {}
        self.rest, self.heed = 0, _REST  # of the calls that are left alone, the first are remembered for `save()`
        self.lulls = Lulls(frontend)
        self.family: Family | None = None
        self.seen: dict[str, Version] = {}
        self.job: _background.Job | None = None
        #: Compiles for the option ``input_spec``, once: at the decoration of an instance, else before its first call.
        self._ahead = [] if method.ahead is None else [method.ahead]
        self.deferrable = True  # can another thread be given the modes that a capture depends on?
        self.met = Met()
        self._met_elsewhere: set[Any] = set()
        #: How often each route was bound anew: a changed weight costs one of each, whatever their number.
        self.rebinds: Counter[tuple[int, str]] = Counter()
        self.fired: Counter[str] = Counter()  # what had changed where a program could no longer be used
        self.unnamed: Version | None = None  # whose attribute had changed: the look-up that follows tells which
        self.failures = 0
        self.turnover = Turnover()
        self.moved = 0  # captures that another thread spoiled
        #: How often the eager method raised where a capture was to be compared with it, and are such calls left alone?
        self.raised: dict[Any, tuple[int, Callable[[], bool]]] = {}
        self.changes = 0  # of the versions that it has a program for
        self._binding, self._patient = _fork_safe.Lock(), True
        self.crowds, self.pace, self.stumbles = Crowds(), Pace(), _stumbles.Stumbles()
        self.found: Any = None  # see ``_miss._Found``
        self.stores, self.walked, self.sides = Stores(method), Walked(), _sides.Sides()
        self._transparent, self._grad = frontend.transparent, frontend.grad_enabled
        self._always = method.options.verify == "always"
        _STATES.add(self)

    def call(self, owner: tuple[Any, ...], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Answer one call; `owner` is (instance,) or ()."""
        if capturing():
            return _own_thread.found(self.method.function)(*owner, *args, **kwargs)
        stance = _chosen() or _look_up(_STANCE)
        if self.rest > 0 and stance != _FAILING and stance != _EAGERLY:  # below zero where threads met
            self.rest -= 1
            if self.heed > 0 and (not self._transparent() or self._placed()) and self._unlike_others(args, kwargs):
                self.rest = 0
                return self.call(owner, args, kwargs)
            return self._alone(owner, args, kwargs)
        if self._transparent() and not self._placed():
            reason = self.frontend.aside()
            if reason:
                self.counters.fall_back(reason)
            return self.method.function(*owner, *args, **kwargs)
        if stance == _EAGERLY:
            return self.eagerly(owner, args, kwargs, "the stance is 'eager'", "", "busy")
        glance: Any = None
        if self.lulls.known and stance != _FAILING:
            glance = self.lulls.glance(args, kwargs)
            if self.lulls.take(glance) and not (self.heed > 0 and self._unlike_others(args, kwargs)):
                return self._alone(owner, args, kwargs)
        values = self._bind(args, kwargs)
        if values is None:
            result = self.method.function(*owner, *args, **kwargs)  # a wrong call: the method's own error
            self.note(_UNLIKE, "Leave functools.wraps out of it, or decorate the function below it", "capture")
            return result
        tensors: list[Any] = []
        boxes: dict[int, Any] = {}
        try:
            key: Any = (self._key(values, tensors, self._defaults, boxes), self._ambient())
            if len(tensors) > 1 and len({*map(id, tensors)}) < len(tensors):  # one tensor passed more than once
                key = (*key, tuple(map(list(map(id, tensors)).index, map(id, tensors))))
            if self.facts is not None:
                key = (*key, *map(self.facts, tensors))
            if any(map(ATTRIBUTES, tensors)):
                key = (*key, self.carried(tensors))
            if boxes and not self.holds.isdisjoint(boxes):
                key = (*key, "held")
            route: Compiled | Eager | None = self.memo.get(key)
        except (Unsupported, TypeError, RuntimeError) as fault:  # the last of tensors that have no sizes
            if self.frontend.tracing():
                return self.method.function(*owner, *args, **kwargs)
            return self.eagerly(owner, args, kwargs, *self._named(values, fault))
        if route is None or not route.valid():
            route, result = self._look_up(owner, args, kwargs, values, key, route, boxes)
            if result is not NOTHING:
                return result
            assert route is not None
        else:
            try:
                self.memo.move_to_end(key)
            except KeyError:  # another thread let go of it meanwhile; this call has its route
                _log.debug("%s: a route was dropped while it was used", self.method.name)
        if route.eager:
            return self.eagerly(owner, args, kwargs, route.reason, route.remedy, route.kind)
        if glance is not None:
            self.lulls.won(glance)
        ints: Sequence[int] = ()
        given: Any = ()
        if not route.plain:
            if route.ints:
                ints = [v for v in values if type(v) is int]
                if len(ints) != len(route.held.version.ints):
                    ints = self.numbers(key, values)
            if route.handed_back:
                gaps = [i for i in route.handed_back if not tensors[i].is_contiguous()]
                known = [route.held.with_gaps.get(i) for i in gaps]
                if not all(known):
                    from hybrid_infer import _compared

                    unknown = () if False in known else gaps
                    return _compared.with_gaps(self, owner, args, kwargs, values, route, unknown)
            if route.objects:
                given = [*boxes.values()]
                if len(given) != route.objects or not route.kept_elsewhere.isdisjoint(boxes):
                    return self.eagerly(owner, args, kwargs, "its layer or its code holds an argument too", "", "busy")
            if route.state:
                tensors = route.works_on(tensors)
            if route.written and not route.apart(tensors):
                return self.eagerly(owner, args, kwargs, OVERLAP, "", "busy")
        if self._always:
            from hybrid_infer import _compared

            return _compared.compared(self, owner, args, kwargs, values, key, route)
        if route.requiring:
            if self._grad():
                return self.eagerly(owner, args, kwargs, *_gradients.REQUIRING)
            if not all(tensors[i].is_contiguous() for i in route.requiring):
                return self.eagerly(owner, args, kwargs, _gradients.GAPS, "", "busy")
        connected: Callable[[], Any] | None = None
        if self._grad():
            served, connected = _gradients.recorded(
                self, owner, args, kwargs, values, key, route, tensors, ints, given
            )
            if connected is not None and not served:
                return connected()
        failed: Exception | None = None
        try:
            if connected is not None:
                result = connected()
            elif route.written:
                result = self._write(route, tensors, ints, given)
            else:
                result = route.run(tensors, ints, given)
        except Exception as fault:
            failed = fault
        if failed is not None:  # outside of that, so that what the method raises itself comes of nothing of ours
            try:
                return self._instead(owner, args, kwargs, key, route, failed)
            finally:
                failed = None
        if route.written:
            if result is NOTHING:
                return self.eagerly(owner, args, kwargs, _written.RESTLESS, "", "busy")
            if type(result) is _written.Failed:
                raise result.fault
        self.counters.hits += 1
        self.pace.served += 1
        if self.stumbles.counts:
            self.stumbles.counts.pop(key, None)
        if self.sides.strayed:
            self.sides.fitted(route.held)
        if given or self.boxes.carries:
            return _given.applied(result, self.frontend.write, self.boxes.assign)
        return result

    def _look_up(
        self, owner: tuple[Any, ...], args: Any, kwargs: Any, values: Any, key: Any, former: Any, boxes: dict[int, Any]
    ) -> Answer:  # fmt: skip
        """A route for a call, of which `former` holds no longer, or its result (see `_miss`)."""
        if former is not None and not former.eager:
            what = former.broken()
            self.fired[what] += 1
            self.unnamed = former.held.version if what == ATTRIBUTE else None
        route = None if former is None or boxes else self.switched(key, former)
        if route is not None:
            return route, NOTHING
        found, result = miss(self, owner, args, kwargs, values, key)
        if result is not NOTHING and found is not None and found.eager and found.kind == "slower":
            self._leave_alone(args, kwargs)
        return found, result

    def _instead(self, owner: tuple[Any, ...], args: Any, kwargs: Any, key: Any, route: Any, fault: Exception) -> Any:
        """The answer to a call at which a program failed."""
        from hybrid_infer import _interrupts

        _interrupts.let_through(fault)
        if _sides.went_another_way(fault, route) and self.sides.last(route.held):
            _serve.leave(self, route, fault)
            return self.call(owner, args, kwargs)
        result = self.method.function(*owner, *args, **kwargs)  # where it fails as well, the call is at fault
        _stumbles.over(self, key, route, fault)
        return result

    def _write(self, route: Any, tensors: Sequence[Any], ints: Sequence[int], given: Any) -> Any:
        """See ``Turn.take``."""
        written = [tensors[i] for i in route.written]
        return _written.Turn(self.frontend, written, self.boxes.assign).take(lambda: route.run(tensors, ints, given))

    def meet(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
        """Remember a call that somebody else answers, such as the framework's own training path.

        Is it the first one of its signature, and unlike those for which the eager method is the faster one?
        """
        values: Any = self._bind(args, kwargs)
        try:
            key = None if values is None else self._key(values, [], self._defaults, {})
            if key is None or key in self._met_elsewhere:
                return False
            layout = self.layout(values)
            found = specs(self.frontend, layout)
        except (Unsupported, TypeError, RuntimeError) as fault:  # the last of tensors that have no sizes
            _log.debug("%s: a call is not remembered: %s", self.method.name, fault)
            return False
        if len(self._met_elsewhere) < _MEMO:
            self._met_elsewhere.add(key)
        call = Call(layout.tree, found, tuple(layout.ints), (), tuple(layout.places), tuple(layout.int_places))
        met(self, call, layout, values, (len(args), frozenset(kwargs)))
        kind, scale = (call.tree, [t.dtype for t in call.tensors]), _choice.scale(call)
        losers = [held.version for (_, at), (held, _) in list(self.slower.items()) if at == scale]
        return all((each.tree, [t.dtype for t in each.tensors]) != kind for each in losers)

    def eagerly(
        self, owner: tuple[Any, ...], args: Any, kwargs: Any, reason: str, remedy: str, kind: str = "capture"
    ) -> Any:
        """The answer of the eager method. Where that raises an error, the call is at fault, and no reason is logged."""
        if kind == "slower":
            self._leave_alone(args, kwargs)
            result = self.method.function(*owner, *args, **kwargs)
            self.counters.fall_back(_stats.RECORDED if self._records(result) else reason)
            return result
        if kind == "busy" or self.method.options.fallback == "error":
            self.note(reason, remedy, kind)
            return self.method.function(*owner, *args, **kwargs)
        self.counters.fall_back(reason)
        result = self.method.function(*owner, *args, **kwargs)
        self.method.warn(reason, remedy)
        return result

    def note(self, reason: str, remedy: str, kind: str) -> None:
        """Count and log that the eager method answers. Raises CaptureError or BackendError under fallback="error"."""
        self.counters.fall_back(reason)
        if kind != "busy":
            if self.method.options.fallback == "error":
                from hybrid_infer import _troubleshooting

                error = BackendError if kind == "build" else CaptureError
                raise error(self.method.name, reason, _troubleshooting.remedy(reason, remedy))
            self.method.warn(reason, remedy)

    def _records(self, result: Any) -> bool:
        """Is a backward pass possible through a result of the eager method?"""
        if not self._grad():
            return False
        several = result.values() if isinstance(result, dict) else result
        several = several if isinstance(result, (dict, list, tuple)) else [result]
        needs, tensor_type = self.frontend.requires_grad, self.frontend.tensor_type
        return any(isinstance(each, tensor_type) and needs(each) for each in several)

    def _leave_alone(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """Look at no call for a while; where an engine serves calls of another scale, at none that look like this one.
        """
        self.rest = 0 if self.routes else _REST
        if self.routes:
            self.lulls.lost(self.lulls.glance(args, kwargs))

    def _unlike_others(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
        """Is one of the first calls that are to be left alone looked at all the same (see ``meet``)?"""
        self.heed -= 1
        return self.meet(args, kwargs)

    def _alone(self, owner: tuple[Any, ...], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """The answer to a call that is left alone."""
        result = self.method.function(*owner, *args, **kwargs)
        if self._records(result):
            self.counters.left_recorded += 1
        else:
            self.counters.left_alone += 1
        return result

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

    def known_otherwise(self, values: Sequence[Any], key: Any) -> Any:
        """The route for a call of which another static model of the instance is known to ask for something else."""
        for asked in self.askings.others(self.asked):
            route = self.memo.get(self.key(values, asked))
            if route is None or not route.valid():
                continue
            if asked.names <= self.asked.names:  # what tells its calls apart tells these apart
                self.remember(key, route)
            else:
                self._turn_to(asked)
            return route
        return None

    def compile(
        self, owner: tuple[Any, ...], args: Any, kwargs: Any, values: Any, key: Any, errand: Errand,
        ambient: Callable[[], Any] | None = None,
    ) -> Any:  # fmt: skip
        """The route for a call that nobody waits for, left where the next call finds it; None if there is none yet.

        `ambient` is what the key was made with, where that may be some time ago.
        """
        self.deferrable = (ambient or self._ambient)() == key[1]
        if not self.deferrable:
            _log.info("%s is compiled at a call: no other thread can be given this one's modes", self.method.name)
            return None
        if ambient not in (None, self._ambient):  # meanwhile the code was found to ask for more
            key = self.key(values)
        return miss(self, owner, args, kwargs, values, key, errand)[0]

    def subject(self, owner: tuple[Any, ...], layout: Any) -> Subject:
        """What the method works on now."""
        return subject_of(self, owner, layout)

    def remember(self, key: Any, route: Any) -> None:
        """Have the calls with this key answered by `route`."""
        memo = self.memo
        before = memo.pop(key, None)
        if before is not None and before is not route:
            self._put_aside(key, before)
        memo[key] = route
        if len(memo) > _MEMO:
            try:
                self.aside.pop(memo.popitem(last=False)[0], None)
            except KeyError:  # another thread emptied it
                _log.debug("%s: routes were dropped while one was added", self.method.name)

    def _put_aside(self, key: Any, route: Compiled | Eager) -> None:
        """Keep a route for the time when its conditions hold again, as they do for `training` after each epoch."""
        if route.kind == "busy" if route.eager else not self._in_use(route):
            return
        aside = self.aside
        several = (route, *(each for each in aside.get(key, ()) if each is not route))
        kept = (each for each in several if not (each.eager and each.keeps_former_weights()))
        aside[key] = tuple(kept)[:_ASIDE]
        if len(aside) > _MEMO:
            aside.pop(list(aside)[0], None)  # noqa: RUF015 - another thread may add one meanwhile

    def _in_use(self, route: Any) -> bool:
        """Is it the one that its instance has of a program? And it is known which side of branches a call takes.

        And its calls were told apart by what tells them apart now.
        """
        alike = not route.held.version.sides and route.asks == self.asked.names
        return alike and any(each is route for each in list(self.routes.values()))

    def switched(self, key: Any, former: Any) -> Compiled | Eager | None:
        """A route that answered such calls before, and does again where `former` does no longer; None: there is none.

        Or it has to be found out first what a call's values are, as where other defaults came back with the code.
        """
        if self.boxes.carries or self.method.redefined() or self.own_parameters is not self.method.parameters:
            return None
        for route in self.aside.get(key, ()):
            if route is not former and (route.eager or self._in_use(route)) and route.valid():
                self.remember(key, route)
                return route
        return None

    def release(self) -> None:
        """Let go of every program and of what is known of versions: the next call takes them from the store.

        Calls in flight keep theirs until they end. Versions that are in no store stay known.
        """
        self.memo, self.routes, self.seen, self.slower, self.rest = OrderedDict(), {}, {}, {}, 0
        self.aside, self._numbered = {}, {}
        self.walked, self.crowds, self.pace, self.stumbles = Walked(), Crowds(), Pace(), _stumbles.Stumbles()
        self.sides, self.lulls = _sides.Sides(), Lulls(self.frontend)
        self.changes += 1
        family = self.family
        if family is not None and not any(h.entry is None and h.version.graph for h in list(family.held)):
            self.family = self.stores.family = None


_STATES: weakref.WeakSet[State] = weakref.WeakSet()
_INHERITED: list[Any] = []


def _enter_child() -> None:
    """A forked child gets programs of its own; the parent's are kept untouched for ever: dropping one would hang."""
    _family.renew_after_fork()
    _written.Turn.renew_after_fork()
    for state in list(_STATES):
        _INHERITED.append((state.memo, state.routes, state.aside))
        state.memo, state.routes, state.aside, state.job = OrderedDict(), {}, {}, None


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_enter_child)
