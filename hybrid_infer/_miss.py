"""The miss path, as far as a request: what is known of a call that no route answers, and who is to look further.

``state`` is the `State` of the instance. What comes back is (route, result), as of `_resolve`.
"""

from __future__ import annotations

import contextlib
import logging
import threading
import time
import weakref
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from hybrid_infer import _choice, _cinn, _defects, _family, _pace, _progress, _stance, _trt
from hybrid_infer._busy import NOTHING
from hybrid_infer._log import tell
from hybrid_infer._met import Style
from hybrid_infer._pauses import ever_longer, for_a_while
from hybrid_infer._request import Errand, Request, described, specs
from hybrid_infer._resolve import resolve
from hybrid_infer._route import ATTRIBUTE, Answer, Eager
from hybrid_infer._signature import Layout, Signatures
from hybrid_infer._subject import Subject, Unformed
from hybrid_infer._unsupported import Unsupported
from hybrid_infer._version import Call
from hybrid_infer.checks import _magnitudes
from hybrid_infer.checks._invocation import Invocation
from hybrid_infer.state import _given
from hybrid_infer.state._carry import Found, joined
from hybrid_infer.state._ran_eagerly import NOTHING_ELSE

_log = logging.getLogger("hybrid_infer")

_REBINDS = 3  # changes of weights after which they are fed as inputs instead of bound
_PAUSE = 60.0  # seconds after which a capture in the background is asked for again, where there was no thread for it

_RAISED = "it raised an error at such a call, so that there was nothing to compare its static model with"
_AFTER_ERROR = 1.0  # seconds, ever longer, for which such calls are not compiled again
_ERRORS = 64  # kinds of calls of which that is remembered

_HELD = 5.0  # seconds after which it is looked again whether the layer holds what a call is given

_CALL = Errand()
_LATER = Errand(ahead=True, forked=True)  # for a call that the eager method has answered


def miss(
    state: Any, owner: tuple[Any, ...], args: tuple[Any, ...], kwargs: Any, values: Any, key: Any,
    errand: Errand = _CALL,
) -> Answer:  # fmt: skip
    """A route for a call that none answers, or its result if the eager method had to be run for it anyhow."""
    try:
        return _missed(state, owner, args, kwargs, values, key, errand)
    except Unformed as fault:  # which nobody keeps: the eager method gives it a shape
        return Eager(str(fault), lambda: False, kind="busy"), NOTHING


def _missed(
    state: Any, owner: tuple[Any, ...], args: tuple[Any, ...], kwargs: Any, values: Any, key: Any, errand: Errand
) -> Answer:  # fmt: skip
    recurring = None if errand.ahead else state.crowds.again(key, state.family)
    if recurring is not None:
        return recurring, NOTHING
    if state.method.redefined() or state.own_parameters is not state.method.parameters:
        state.adopt_parameters()
        return None, NOTHING if errand.ahead else state.call(owner, args, kwargs)
    parameters = state.parameters
    if len(values) != len(parameters.names):  # what is carried was found out meanwhile
        return _again(state, owner, args, kwargs, values, errand)
    known = state.known_otherwise(values, key)
    if known is not None:
        return known, NOTHING
    if not errand.ahead and state.pace.rests() and _stance.current() != _stance.FAIL:
        return _at_its_own_pace(state, owner, args, kwargs)
    begun, made = time.thread_time(), _made(state)  # what others keep this thread waiting for is no cost of ours
    try:
        layout = state.servable(values)
    except Unsupported as fault:
        return None, state.eagerly(owner, args, kwargs, str(fault), fault.remedy)
    unread = _unread(state, owner, layout)
    if unread is not None:
        state.remember(key, unread)
        return unread, NOTHING
    call = described(layout, state.frontend, key[1], state.facts)
    met(state, call, layout, values, (len(args), frozenset(kwargs)))
    given = _given.objects(values, parameters.defaults)
    subject = _just_found(state, layout)
    chooses = _chooses(state, call)
    ready = None if _lately(state, key) else _ready(state, call, errand, chooses)
    holds_objects = layout.holds_objects and not errand.ahead  # of a call ahead the arguments are copies
    if holds_objects and (ready is None or not state.holds.isdisjoint(map(id, given))):
        subject = subject or subject_of(state, owner, layout)
        held = subject.holds_objects
        if held != state.holds:
            state.holds, key = held, state.key(values)
        if not held.isdisjoint(map(id, given)):
            unserved = Eager("it is given an object that its layer or its code holds too", for_a_while(_HELD))
            state.remember(key, unserved)
            return unserved, NOTHING
    lately = _lately(state, key)
    if lately is not None:
        return Eager(_RAISED, lately, kind="busy"), NOTHING
    if ready is not None:
        state.remember(key, ready)
        return ready, NOTHING
    crowd = None if errand.ahead else state.crowds.of(call, state.family, key)
    if crowd is not None:  # which is not kept for the value at hand: the next one is another
        return crowd, NOTHING
    method = state.method
    stance = _stance.current()
    resting = state.turnover.resting
    if resting is not None and resting.valid() and stance != _stance.FAIL:
        state.remember(key, resting)
        return resting, NOTHING
    background = stance == _stance.BACKGROUND or (stance == _stance.DEFAULT and method.options.background)
    if not errand.ahead and stance != _stance.FAIL and state.compile_ahead(owner, background):
        return miss(state, owner, args, kwargs, values, key)
    if background and state.deferrable and not errand.ahead:
        return _defer(state, owner, args, kwargs, values, layout)
    subject = subject or subject_of(state, owner, layout)
    if state.unnamed is not None:
        _name(state, subject)
    if state.parameters is not parameters or state.ask(subject) or not state.carries_in(subject):
        if state.parameters is parameters:
            state.found = _Found(threading.get_ident(), parameters, layout.kinds, layout.passed, subject)
        try:
            return _again(state, owner, args, kwargs, values, errand)
        finally:
            state.found = None
    style = len(args), frozenset(kwargs)
    request = _request(state, parameters, style, layout, call, subject, given, chooses, errand, stance)
    shown = contextlib.nullcontext() if errand.forked else _progress.working(f"preparing {method.name}")
    with shown:
        invocation = Invocation(request, owner, args, kwargs, values)
        try:
            route, result = _resolved(state, request, invocation, key)
        except Found as found:
            method.carries = joined(method.carries, found.carries)
            state.carries_in(subject)
            return _again(state, owner, args, kwargs, values, errand)
    if result is NOTHING and not errand.ahead and made == _made(state):
        state.pace.looked_up(time.thread_time() - begun)
    if route is not None:
        # Of a large program, what its code asks for is known better by now.
        state.remember(key if state.asked.names == subject.asks else state.key(values), route)
    return route, _given.result(result)


def _request(
    state: Any, parameters: Any, style: Style, layout: Layout, call: Call, subject: Subject, given: Sequence[Any],
    chooses: bool, errand: Errand, stance: str,
) -> Request:  # fmt: skip
    """All that is asked of a version that is to answer a call, and of the engine that is to run it."""
    method, frozen = state.method, stance == _stance.FAIL
    live = method.options.weights == "live" or (
        method.options.weights == "auto" and max(state.rebinds.values(), default=0) >= _REBINDS and not frozen
    )
    return Request(
        state.frontend, method.options, method.function, method.name, parameters, layout, call, subject,
        state.stores.choose(subject), live, style, frozen, errand, given=given, chooses=chooses, writes=True,
        assuming=True,
    )  # fmt: skip


def _resolved(state: Any, request: Request, invocation: Invocation, key: Any) -> Answer:
    """What ``resolve`` gives. Where the eager method raised meanwhile, such calls are left alone for a while."""
    try:
        return resolve(state, request, invocation)
    except Found:
        raise
    except Exception as fault:
        if invocation.raised:  # a program may go on, and do so again
            times, _ = state.raised.get(key, (0, None))
            while len(state.raised) >= _ERRORS:
                state.raised.pop(next(iter(state.raised)), None)
            state.raised[key] = times + 1, for_a_while(ever_longer(_AFTER_ERROR, times))
        if invocation.answer is NOTHING or not _defects.ours(fault, state.method.function):
            raise
        _defects.tell(state, fault, lambda: key)  # what the answer has changed must not be changed again
        return None, invocation.answer


def _lately(state: Any, key: Any) -> Callable[[], bool] | None:
    """Has the eager method raised at such a call, so lately that it is not compiled again?"""
    lately = state.raised.get(key, (0, None))[1]
    return lately if lately is not None and lately() else None


def _name(state: Any, subject: Subject) -> None:
    """Count a change of an attribute by the name of the attribute."""
    version, state.unnamed = state.unnamed, None
    under = None if version is None else subject.under(version.ran)
    read = None if under is None else under.attributes.match(version.reads, under.census)
    if read is not None:
        from hybrid_infer import _differences

        state.fired[ATTRIBUTE] -= 1
        state.fired[_differences.in_code(read)] += 1


def _at_its_own_pace(state: Any, owner: tuple[Any, ...], args: Any, kwargs: Any) -> Answer:
    """The eager answer where look-ups take longer (see `_pace`)."""
    route = Eager(_pace.REASON, lambda: False, remedy=_pace.REMEDY, kind="busy")
    state.note(route.reason, route.remedy, route.kind)
    begun = time.perf_counter()
    result = state.method.function(*owner, *args, **kwargs)
    state.pace.eager_took(time.perf_counter() - begun)
    return route, result


def _made(state: Any) -> tuple[int, ...]:
    """What tells a look-up from work that is done once: the captures, programs and choices of the method so far."""
    counters = state.counters
    return counters.captures, counters.builds, counters.disk_loads, len(state.seen)


def _again(state: Any, owner: tuple[Any, ...], args: Any, kwargs: Any, values: Any, errand: Errand) -> Answer:
    """The same when something was learned about the method."""
    if not errand.ahead:
        return None, state.call(owner, args, kwargs)
    values = state.with_carries(values)
    return miss(state, owner, args, kwargs, values, state.key(values), errand)


def met(state: Any, call: Call, layout: Layout, values: Sequence[Any], style: Style) -> None:
    """Remember a call for ``save()``, a dataclass among its arguments as its fields: a saved model changes none."""
    own = state.own_parameters
    try:
        if layout.repeats:
            raise Unsupported("a list or dict in two places", values)
        if layout.holds_objects or state.parameters is not own:
            layout = Signatures(state.frontend).layout(values[: len(own.names)], own.names, own.defaults)
            tensors, ints = specs(state.frontend, layout), tuple(layout.ints)
            call = Call(layout.tree, tensors, ints, (), tuple(layout.places), tuple(layout.int_places))
    except Unsupported:
        state.met.others = True
    else:
        state.met.note(call, style)


def _unread(state: Any, owner: tuple[Any, ...], layout: Layout) -> Eager | None:
    """The route of calls whose tensors carry attributes that the method may read; None where it reads none."""
    carried = state.carried(layout.tensors)
    if not carried:
        return None
    subject = subject_of(state, owner, layout)
    read = sorted(subject.codes.mentioned(carried))
    if not read:
        return None
    reason = f"it may read the attribute {read[0]!r} of a tensor that it is given, which no signature holds"
    return Eager(reason, subject.code_unchanged, remedy="Pass it as an argument")


def _ready(state: Any, call: Call, errand: Errand, chooses: bool) -> Any:
    """A route that was made for another call, and that answers this one too; None where there is none."""
    opens = errand.open
    scale = _choice.scale(call) if chooses else 0
    for (_, at), (held, loser) in list(state.slower.items()):
        if at == scale and held.version.fits(call) and held.version.varies(opens) and loser.valid():
            return loser
    ready = [
        r for r in list(state.routes.values())
        if scale in r.scales and r.held.version.fits(call) and r.held.version.varies(opens) and r.valid()
        and r.serves(call) and not state.sides.rests(r.held) and _magnitudes.of(r.held.version, call) in r.magnitudes
    ]  # fmt: skip
    if not ready or (state.family is not None and state.family.barred(call)):
        return None
    route = max(ready, key=lambda r: (r.held.version.width, r.ranged))
    return route if route.ranged or not _trt.asked(state.method.options) else None


def _chooses(state: Any, call: Call) -> bool:
    """Is the engine for such a call chosen by measurement?"""
    options = state.method.options
    if options.backend or options.verify == "always":
        return False
    device = call.tensors[0].device if call.tensors else "cpu"
    return not (_trt.names_the_order(options, device) or _cinn.names_the_order(options, device))


def subject_of(state: Any, owner: tuple[Any, ...], layout: Layout) -> Subject:
    method = state.method
    return Subject(
        state.frontend, method.function, owner[0] if owner else None, bool(owner), method.name,
        method.options.cache_key, layout.kinds, state.parameters.carries, state.walked, state.stores.marks_at,
        passed=layout.passed,
    )  # fmt: skip


class _Found(NamedTuple):
    """What a thread found that a method works on, for the same call once more: it takes milliseconds to look for."""

    thread: int
    parameters: Any
    kinds: Sequence[type]
    passed: Sequence[type]
    subject: Subject


def _just_found(state: Any, layout: Layout) -> Subject | None:
    """What this thread has found for this call, which has learned since what else to ask; None where it has nothing."""
    found, state.found = state.found, None
    if found is None or found.thread != threading.get_ident() or found.parameters is not state.parameters:
        return None
    same = found.kinds == layout.kinds and found.passed == layout.passed
    return found.subject if same else None


def _defer(
    state: Any, owner: tuple[Any, ...], args: Any, kwargs: Any, values: Any, layout: Layout
) -> Answer:
    """Answer eagerly, and have the call compiled in the background; one call of an instance at a time."""
    from hybrid_infer import _background

    job = state.job
    if job is not None and job.pending():
        return Eager(_background.REASON, job.pending, kind="busy"), NOTHING
    # The copies are made first, since the method may write to its arguments; and a call that fails is at fault.
    job = _background.Job(state, owner, (len(args), frozenset(kwargs)), state.keyed(values), layout, _LATER)
    result = state.method.function(*owner, *args, **kwargs)
    route = Eager(_background.REASON, job.pending, kind="busy")
    state.job = job
    state.remember(job.key, route)
    state.note(route.reason, "", route.kind)
    try:
        _background.submit(job)
    except RuntimeError as fault:  # the system gives no more threads, or the program is ending
        _log.info("%s is compiled later, in the background: %s", state.method.name, fault)
        route, state.job = Eager(_background.REASON, for_a_while(_PAUSE), kind="busy"), None
        state.remember(job.key, route)
    return route, result


#: What is not to be on disk, of all instances whose method has a name: they go together, and so does this.
_IN_MEMORY: weakref.WeakValueDictionary[str, Any] = weakref.WeakValueDictionary()


class Stores:
    """Where the versions of an instance are kept: on disk; in a store of its own where they must stay off it."""

    def __init__(self, method: Any) -> None:
        self._method = method
        self._own: Any = None  # for what no key can tell apart
        self._kept: Any = None  # for what is not to be on disk, shared
        self.family: Any = None  # of a large program
        self._told = False
        self._sealed: Callable[[], bool] = lambda: True
        self._resets, self._opaque = 0, ""

    def choose(self, subject: Subject) -> Any:
        """The disk; for what must stay off it, a store in memory that lives as long as this."""
        if not subject.opaque:
            return self.open()
        if self._own is None or not self._sealed():
            from hybrid_infer.cache import MemoryStore

            self._own = MemoryStore()  # and a new one where what no key can tell apart was changed
            self._sealed, self._resets = subject.code_unchanged, self._resets + 1
            self._opaque = subject.opaque[0]
            self._told = False
        if not subject.large:
            self.tell(subject)
        return self._own

    def tell(self, subject: Subject) -> None:
        """Log, once, what keeps a method off the disk. Of a large program, most of that may never run."""
        if subject.opaque and not self._told:
            self._told, name, why = True, self._method.name, "; ".join(subject.opaque[:3])
            text = "%s is compiled anew by each process, not kept on disk: %s"
            tell(logging.INFO, "kept_off_disk", name, text, name, why, reason=why)

    def open(self) -> Any:
        """The store for what a key tells apart: the disk, unless the method is not to be kept there."""
        if self._method.options.cache_static_model:
            return self._method.store()
        if self._kept is None:
            from hybrid_infer.cache import MemoryStore

            self._kept = _IN_MEMORY.setdefault(self._method.name, MemoryStore())
        return self._kept

    def marks_at(self, place: str) -> frozenset[str] | None:
        """The marks of what has run for the static models of a large program (see `_ran`); None where there are none.
        """
        family = _family.family(self.open(), place)
        if not family.held:
            family.refresh(self.open())
        found = [held.version.ran.codes for held in list(family.held) if held.version.ran is not None]
        # Kept, so that the next call need not read it from disk, and what eager calls ran is known.
        self.family = family if found or family.eagerly is not NOTHING_ELSE else None
        return frozenset().union(*found) if found else None

    def items(self) -> list[tuple[str, str]]:
        """What no key can tell apart, as if it were an ingredient of one: by how often it was found to have changed."""
        return [(f"{self._opaque} (it has no fingerprint)", str(self._resets))] if self._opaque else []
