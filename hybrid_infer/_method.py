"""HotMethod: what a decorated function is; its outer forms: a function of a class, and one bound to an instance."""

from __future__ import annotations

import functools
import inspect
import logging
import sys
import types
import weakref
from collections.abc import Callable, Collection
from typing import TYPE_CHECKING, Any

from hybrid_infer import (
    _compilers,
    _defects,
    _fleeting,
    _fork_safe,
    _frontends,
    _options,
    _own_thread,
    _stats,
    _wrappers,
)  # fmt: skip
from hybrid_infer._errors import CaptureError, HybridInferError
from hybrid_infer._fleeting import Fleeting
from hybrid_infer._log import tell
from hybrid_infer._options import Options
from hybrid_infer._parameters import OF_INSTANCES, Parameters
from hybrid_infer._unsupported import Unsupported
from hybrid_infer.objects import _origin

if TYPE_CHECKING:
    from hybrid_infer._dispatch import State
    from hybrid_infer.state._carry import Carry

_log = logging.getLogger("hybrid_infer")


_METHODS: weakref.WeakSet[HotMethod] = weakref.WeakSet()
_NO_REFERENCES = "Give its class the slot __weakref__, or make a class of a types.SimpleNamespace"
_KINDS = 16  # classes of first arguments that one function remembers


class HotMethod:
    """A decorated function: its options, its counters, and one state per instance, each held weakly."""

    def __init__(self, function: Any, options: Options, *, has_owner: bool) -> None:
        # What answers calls is loaded here, for what decorates nothing has no use for it; and not at a first call, so
        # that the workers that a server forks share it.
        from hybrid_infer import _dispatch

        self._made: Callable[[HotMethod, Any], State] = _dispatch.State
        self.function, self.options, self.has_owner = function, options, has_owner
        self.name = f"{_origin.in_every_process(function.__module__)}.{function.__qualname__}"
        self.parameters = Parameters(function, owner=has_owner)
        self.counters = _stats.counters(self.name)
        #: What it carries from call to call, as far as calls of any instance have shown (see `_carry`).
        self.carries: tuple[Carry, ...] = ()
        self.ahead: Callable[..., None] | None = None
        if options.input_spec is not None:
            from hybrid_infer import _ahead

            self.ahead = _ahead.compile_ahead
        self._static: Callable[..., Any] | None = None
        self._owned: HotMethod | None = None
        #: Of a function that is a method of its first argument, where that is no layer.
        self._fleeting: Fleeting | None = None
        #: Classes of first arguments that are no instances, as far as a function without one has met them.
        self.values: frozenset[type] = frozenset()
        self.states: dict[int, tuple[weakref.ref[Any], State]] = {}
        self._alone: State | None = None
        self._store: Any = None
        self._lock = _fork_safe.Lock()
        self._warned: set[str] = set()
        _METHODS.add(self)
        _compilers.look()

    def state(self, owner: Any) -> State | None:
        """The state of an instance; None where it can have none (see ``unknown``)."""
        found = self.states.get(id(owner))
        if found is not None and found[0]() is owner:
            return found[1]
        frontend = _frontends.of(owner)
        if frontend is None:
            frontend = _frontends.of_state(self.function, owner)
        if frontend is None:
            return None
        number, states = id(owner), self.states
        fleeting = None if isinstance(owner, frontend.layer_type) else self._fleeting
        if fleeting is not None and fleeting.passes(len(states)):
            return None

        def forget(reference: Any) -> None:
            if number in states and states[number][0] is reference:
                _, state = states.pop(number)
                if fleeting is not None:
                    fleeting.gone(state.pace.served)

        try:
            reference = weakref.ref(owner, forget)
        except TypeError:  # nothing would tell that it is gone
            return None
        state = self._made(self, frontend)
        states[number] = (reference, state)
        return state

    def alone(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> State | None:
        """The state of a function that has no instance; None where no framework's tensor is in sight."""
        if self._alone is None:
            frontend = _frontends.of_values([*args, *kwargs.values()]) or _frontends.of_state(self.function, None)
            if frontend is None:
                return None
            self._alone = self._made(self, frontend)
        return self._alone

    @property
    def static(self) -> Callable[..., Any]:
        """The function where it stands in a class as a static method: its first argument is no instance."""
        if self._static is None:
            self._static = decorate_function(self.function, self.options)
        return self._static

    @property
    def owned(self) -> HotMethod:
        """The method that a function is of its first argument, where that is a layer or what holds layers."""
        if self.has_owner:
            return self
        if self._owned is None:
            with self._lock:
                if self._owned is None:
                    owned = HotMethod(self.function, self.options, has_owner=True)
                    owned._fleeting = Fleeting()
                    self._owned = owned
        return self._owned

    def owner(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Any, ...]:
        """(the first argument of a function,) where that is what the function is a method of, else ()."""
        if args:
            value = args[0]
        elif self.first in kwargs and not self.parameters.looked_at:  # to a wrapper it matters how it is passed
            value = kwargs[self.first]
        else:
            return ()
        if self._owned is not None and id(value) in self._owned.states:
            return (value,)
        return (value,) if type(value) not in self.values and self._owns(value) else ()

    def apart(self, args: Any, kwargs: dict[str, Any]) -> tuple[tuple[Any, ...], Any, dict[str, Any]]:
        """What ``owner`` gives, and the other arguments, passed as they were."""
        owner = self.owner(args, kwargs)
        if not owner or args:
            return owner, args[len(owner) :], kwargs
        return owner, args, {name: value for name, value in kwargs.items() if name != self.first}

    @property
    def first(self) -> str:
        """The name of the first parameter, where an argument may be passed to it by that name as well; else ""."""
        found = self.parameters.parameters
        return found[0].name if found and found[0].kind is inspect.Parameter.POSITIONAL_OR_KEYWORD else ""

    def _owns(self, value: Any) -> bool:
        """Is a value a layer, or an object with a layer among its attributes?"""
        parameters = self.parameters.parameters
        if not parameters or parameters[0].kind not in OF_INSTANCES:
            return False
        if not isinstance(value, type) and self.can_own(value) and _frontends.holds_layers(value):
            return True
        if len(self.values) < _KINDS:
            self.values |= {type(value)}
        return False

    def look_again(self, value: Any) -> None:
        """A first argument was found to hold a layer, as others of its class did not."""
        self.values -= {type(value)}

    def owners(self) -> list[Any]:
        """The layers, or the objects that hold them, that a function was called with and that are still there."""
        states = () if self._owned is None else list(self._owned.states.values())
        return [owner for reference, _ in states if (owner := reference()) is not None]

    @property
    def as_static(self) -> HotMethod | None:
        """What it is as a static method; None where it was not called as one."""
        return getattr(self._static, "__hybrid_infer__", None)

    @property
    def sole(self) -> State | None:
        """The state of a function that was called."""
        return self._alone

    def redefined(self) -> bool:
        """Were the defaults of the function replaced? Its parameters are then read anew."""
        if self.parameters.stand(self.function):
            return False
        parameters = Parameters(self.function, owner=self.has_owner)
        if self.parameters.same(parameters):
            return False
        self.parameters = parameters
        return True

    def meet(self, owner: tuple[Any, ...], args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """Remember a call that is answered elsewhere, for ``save()``."""
        state = self.owned.state(owner[0]) if owner else self.alone(args, kwargs)
        if state is not None:
            state.meet(args, kwargs)

    def unknown(self, owner: Any) -> tuple[str, str]:
        """Why an instance has no state, and what to do."""
        kind = type(owner).__name__
        if isinstance(owner, type):
            return "it is a class method, and a class has no weights that could be served", ""
        if _frontends.of(owner) is None and _frontends.of_state(self.function, owner) is None:
            return f"its {kind} holds no layer or tensor of torch or paddle", ""
        try:
            weakref.ref(owner)
        except TypeError:
            return f"nothing would tell when its {kind} is gone, which takes no weak references", _NO_REFERENCES
        return _fleeting.REASON, _fleeting.REMEDY

    def store(self) -> Any:
        """The store on disk, opened at first use."""
        if self._store is None:
            with self._lock:
                if self._store is None:
                    self._store = _options.open_store(self.options)
        return self._store

    def warn(self, reason: str, remedy: str) -> None:
        """Log a reason for an eager answer, once."""
        if reason not in self._warned:
            if len(self._warned) < 64:
                self._warned.add(reason)
            if not self.counters.to_tell(reason):
                return
            from hybrid_infer import _troubleshooting

            text = _troubleshooting.told(reason, remedy)
            fields = {"reason": reason, "remedy": _troubleshooting.remedy(reason, remedy)}
            tell(logging.WARNING, "eager", self.name, "%s runs eagerly: %s", self.name, text, **fields)

    def refuse(self, reason: str, remedy: str = "") -> None:
        """Count and log that a call is answered eagerly. Raises CaptureError under ``fallback="error"``."""
        self.counters.fall_back(reason)
        if self.options.fallback == "error":
            from hybrid_infer import _troubleshooting

            raise CaptureError(self.name, reason, _troubleshooting.remedy(reason, remedy))
        self.warn(reason, remedy)

    def release(self, owners: Collection[int] | None = None) -> None:
        """Give back the programs of the instances with these ids, or of all."""
        for number, (reference, state) in list(self.states.items()):
            if owners is None or (number in owners and reference() is not None):
                state.release()
        if owners is None and self._alone is not None:
            self._alone.release()
        if owners is None and self._owned is not None:
            self._owned.release()

    def take_back(
        self, state: State, noted: int, args: tuple[Any, ...], kwargs: dict[str, Any], fault: Exception
    ) -> None:
        """A call that raised is none that `save()` should serve; one like it that succeeds later is."""
        if isinstance(fault, HybridInferError) or not state.met.take_back(noted):
            return
        try:
            key = state.key(state.parameters.bind(args, kwargs) or ())
        except (Unsupported, TypeError, RuntimeError) as odd:  # as where calls are noted
            _log.debug("%s: a call that raised has no signature: %s", self.name, odd)
            return
        state.memo.pop(key, None)
        state._met_elsewhere.discard(key[0])

    @staticmethod
    def can_own(value: Any) -> bool:
        """Can a value be the instance that a method belongs to, rather than the first argument of a static method?"""
        if isinstance(value, (list, tuple, dict, str, int, float, type(None))):
            return False
        frontend = _frontends.of(value)
        return frontend is None or not isinstance(value, frontend.tensor_type)

    def __reduce__(self) -> Any:
        """For what pickles functions by value, as cloudpickle does: there it is decorated anew."""
        return _decorated_anew, (self.function, self.options, self.has_owner)

    def answer(self, owner: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Answer a call for an instance. Under a name of its own, for a call of an object costs more than of a method.
        """
        found = self.states.get(id(owner))
        state = found[1] if found is not None and found[0]() is owner else self.state(owner)
        if state is None:
            reason, remedy = self.unknown(owner)
            if reason == _fleeting.REASON:
                self.counters.fall_back(reason)
                self.warn(reason, remedy)
            else:
                self.refuse(reason, remedy)
            return self.function(owner, *args, **kwargs)
        noted = state.met.count
        try:
            return state.call((owner,), args, kwargs)
        except Exception as fault:
            if not _defects.ours(fault, self.function):
                self.take_back(state, noted, args, kwargs, fault)
                raise
            defect = fault
        return _defects.answer(state, (owner,), args, kwargs, defect)


def release(owners: Collection[int]) -> None:
    """Give back the programs that any decorated method has for the instances with these ids."""
    for method in list(_METHODS):
        method.release(owners)


def decorate(function: Any, options: Options) -> Callable[..., Any]:
    """The function of a class, decorated."""
    return _wrappers.of_class(HotMethod(function, options, has_owner=True))


def decorate_function(function: Any, options: Options) -> Callable[..., Any]:
    """A plain function of tensors, decorated."""
    return _wrappers.of_function(HotMethod(function, options, has_owner=False))


def _decorated_anew(function: Any, options: Options, has_owner: bool) -> HotMethod:
    return HotMethod(function, options, has_owner=has_owner)


class Bound:
    """A decorated method bound to one instance; copies and pickles follow the instance."""

    def __init__(self, method: HotMethod, owner: Any) -> None:
        self.__hybrid_infer__ = method
        self.__self__ = owner
        functools.update_wrapper(self, method.function, updated=())
        # For `inspect`, which would find the function behind `__wrapped__` with its first parameter.
        self.__signature__ = inspect.signature(types.MethodType(method.function, owner))

    @property  # type: ignore[misc]
    def __class__(self) -> Any:
        """For ``isinstance`` and ``inspect``: Paddle's compilers take what is no method for a plain function.

        torch's follow an object as it is, and fail on one that says it is of another class.
        """
        if "paddle" not in sys.modules:  # it is asked fifty times for each layer that is looked up
            return Bound
        owner = type(object.__getattribute__(self, "__dict__").get("__self__"))
        of_paddle = any(base.__module__.partition(".")[0] == "paddle" for base in owner.__mro__)
        return types.MethodType if of_paddle else Bound

    @_fork_safe.cached_property
    def __func__(self) -> Any:
        """Not the class's function: Paddle takes a method that has it for one that may be dropped from the instance."""
        return _wrappers.of_class(self.__hybrid_infer__)

    def __getattr__(self, name: str) -> Any:
        if name in _OF_FUNCTIONS:  # which a bound method shows as its own, and tracers read
            return getattr(self.__hybrid_infer__.function, name)
        raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if _compilers.reading():
            return _own_thread.found(self.__hybrid_infer__.function)(self.__self__, *args, **kwargs)
        return self.__hybrid_infer__.answer(self.__self__, args, kwargs)

    def __deepcopy__(self, memo: dict[int, Any]) -> Bound:
        import copy

        return Bound(self.__hybrid_infer__, copy.deepcopy(self.__self__, memo))

    def __reduce__(self) -> Any:
        method = self.__hybrid_infer__
        return _rebind, (self.__self__, *_found_in(type(self.__self__), method.function), method.options)

    def __repr__(self) -> str:
        return f"<inference of {self.__hybrid_infer__.name} bound to a {type(self.__self__).__name__}>"


_OF_FUNCTIONS = frozenset({"__closure__", "__code__", "__defaults__", "__globals__", "__kwdefaults__"})


def undecorated(function: Any) -> Any:
    """The function that is ours to decorate; of a wrapper that somebody put around a decorated one, the wrapper."""
    found: Any = getattr(function, "__hybrid_infer__", None)
    ours = found is not None and getattr(function, "__wrapped__", None) is found.function
    return found.function if ours else function


def _found_in(kind: type, function: Any) -> tuple[Any, Any]:
    """How another process finds a function: a class and its name there; else by itself, as functions are pickled."""
    for base in kind.__mro__:
        for name, held in vars(base).items():
            if undecorated(held) is function:
                return base, name
    return None, function


def function_of(holder: Any, name: Any) -> Any:
    """What ``_found_in`` told of."""
    return undecorated(name if holder is None else vars(holder)[name])


def _rebind(owner: Any, holder: Any, name: Any, options: Options) -> Bound:
    return Bound(HotMethod(function_of(holder, name), options, has_owner=True), owner)
