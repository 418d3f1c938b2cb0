"""The parameters of a function: the values of a call, however it passes its arguments."""

from __future__ import annotations

import inspect
import operator
import types
from collections.abc import Callable, Collection, Sequence
from operator import itemgetter
from typing import Any

from hybrid_infer import _wrapping
from hybrid_infer.objects import _state
from hybrid_infer.objects._state import PLAIN

_POSITIONAL_ONLY = inspect.Parameter.POSITIONAL_ONLY
_POSITIONAL_OR_KEYWORD = inspect.Parameter.POSITIONAL_OR_KEYWORD
_VAR_POSITIONAL = inspect.Parameter.VAR_POSITIONAL
_KEYWORD_ONLY = inspect.Parameter.KEYWORD_ONLY
_VAR_KEYWORD = inspect.Parameter.VAR_KEYWORD
#: What the first parameter of a method is.
OF_INSTANCES = (_POSITIONAL_ONLY, _POSITIONAL_OR_KEYWORD, _VAR_POSITIONAL)
_WAYS = 64  # of passing arguments that are kept ready
_WRAPPERS = 8  # around a function, whose parameters are known to be the same without reading them anew


class Parameters:
    """The parameters of a function, so that ``f(x, 2)``, ``f(x, y=2)`` and ``f(x)`` with that default are one call."""

    missing = inspect.Parameter.empty  # the default of a parameter that has none
    carries: tuple[Any, ...] = ()  # what the method carries from call to call (see `_carry`)

    def __init__(self, function: Callable[..., Any], *, owner: bool) -> None:
        self._mark = _mark(function)  # before they are read: what another thread changes meanwhile is looked at
        parameters = list(_wrapping.signature(function).parameters.values())
        if owner:
            if not parameters or parameters[0].kind not in OF_INSTANCES:
                raise TypeError(f"{function.__qualname__} takes no argument for its instance")
            if parameters[0].kind is not _VAR_POSITIONAL:
                parameters = parameters[1:]
        self.parameters = parameters
        self.names = [p.name for p in parameters]
        self.defaults = tuple(p.default for p in parameters)
        self.simple = all(p.kind in (_POSITIONAL_ONLY, _POSITIONAL_OR_KEYWORD) for p in parameters)
        self._table = [(p.kind, p.name) for p in parameters]  # the attributes of `p` are properties
        #: By how many arguments are passed by position, and the names of the others: what puts them in order; None
        #: where something is left for ``**kwargs``.
        self._ways: dict[tuple[Any, ...], Callable[[Any], tuple[Any, ...]] | None] = {}
        self._by_name = frozenset(p.name for p in parameters if p.kind is _KEYWORD_ONLY)
        #: Does it matter to a wrapper which of them a call leaves out?
        self.looked_at = _wrapping.looked_at(function)
        self.count = len(parameters)
        self.required = sum(d is inspect.Parameter.empty for d in self.defaults)

    def stand(self, function: Any) -> bool:
        """Are they those of a function for sure, since nothing has changed that they are read from?"""
        mark, now = self._mark, _mark(function)
        return mark is not None and now is not None and len(mark) == len(now) and all(map(operator.is_, mark, now))

    def same(self, other: Parameters) -> bool:
        """Are they of the same names, with the same objects as defaults?"""
        if [(p.name, p.kind) for p in self.parameters] != [(p.name, p.kind) for p in other.parameters]:
            return False
        pairs = zip(self.defaults, other.defaults, strict=True)
        # The signature of a function in C makes its defaults from text, anew each time.
        return all(_state.same(a, b) for a, b in pairs)

    def bind(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Any, ...] | None:
        """One value per parameter (a tuple for ``*args``, a dict for ``**kwargs``); None if the call is wrong."""
        if self.simple and not kwargs:
            given = len(args)
            if given == self.count:
                return args
            if self.required <= given < self.count:
                return args + self.defaults[given:]
            return None
        passed = (len(args), *kwargs)
        way = self._ways.get(passed)
        if way is not None:
            return way((*args, *kwargs.values(), *self.defaults, (), {}))
        if passed not in self._ways and len(self._ways) < _WAYS:
            self._learn(len(args), tuple(kwargs))
        return self._bind(args, kwargs, self.defaults)

    def _learn(self, given: int, names: tuple[str, ...]) -> None:
        """Keep what puts into order the arguments that are passed so; nothing of a call that is wrong."""
        count = given + len(names)
        defaults = [self.missing if d is self.missing else count + i for i, d in enumerate(self.defaults)]
        found = self._bind(tuple(range(given)), {name: given + i for i, name in enumerate(names)}, defaults)
        passed: tuple[Any, ...] = (given, *names)
        if found and not all(type(i) is int or not i for i in found):
            self._ways[passed] = None
        elif found:
            places = [i if type(i) is int else count + self.count + (type(i) is dict) for i in found]
            alone = slice(places[0], places[0] + 1)  # of one place, what stands there would be given by itself
            self._ways[passed] = itemgetter(*places) if len(places) > 1 else itemgetter(alone)

    def _bind(
        self, args: tuple[Any, ...], kwargs: dict[str, Any], defaults: Sequence[Any]
    ) -> tuple[Any, ...] | None:
        values: list[Any] = []
        left, position, given = dict(kwargs), 0, len(args)
        for (kind, name), default in zip(self._table, defaults, strict=True):
            if kind is _VAR_POSITIONAL:
                values.append(args[position:])
                position = given
            elif kind is _VAR_KEYWORD:
                values.append(left)
                left = {}
            elif position < given and kind is not _KEYWORD_ONLY:
                if name in left and kind is not _POSITIONAL_ONLY:
                    return None
                values.append(args[position])
                position += 1
            elif name in left and kind is not _POSITIONAL_ONLY:
                values.append(left.pop(name))
            elif default is not inspect.Parameter.empty:
                values.append(default)
            else:
                return None
        return None if left or position < given else tuple(values)

    def complete(self, values: Sequence[Any], given: Any = None) -> Sequence[Any]:
        """The values of a call that nobody has made, with what a call would bring beside them (see `_style`).

        `given` are the arguments that it would pass: a list, or a dict by name; None: all, by position.
        """
        return values

    def style(self, values: Sequence[Any]) -> tuple[int, Collection[str]]:
        """How such a call would pass them: how many by position, and the names of the others."""
        return len(values), self._by_name

    def carried(self, values: Sequence[Any]) -> Sequence[Any]:
        """Those of the values of a call that no caller passes."""
        return ()

    def unbind(self, values: Sequence[Any], given: int, names: Collection[str]) -> tuple[list[Any], dict[str, Any]]:
        """The way back: arguments for the function, passed as the caller passed them.

        ``given`` were positional and ``names`` by keyword; a parameter that was left out is left out again, since a
        function behind a wrapper may do something of its own with what it is given. Tensors and traced integers are
        passed all the same, where no wrapper looks: a default that a trace takes from the function is a constant.
        """
        args: list[Any] = []
        kwargs: dict[str, Any] = {}
        for p, value in zip(self.parameters, values, strict=True):
            if p.kind is p.VAR_POSITIONAL:
                args.extend(value)
            elif p.kind is p.VAR_KEYWORD:
                kwargs.update(value)
            elif p.kind is p.POSITIONAL_ONLY or (p.kind is not p.KEYWORD_ONLY and len(args) < given):
                args.append(value)
            elif p.name in names or not (self.looked_at or value is p.default or type(value) in PLAIN):
                kwargs[p.name] = value
        return args, kwargs


def _mark(function: Any) -> tuple[Any, ...] | None:
    """All that the parameters of a function are read from; None of one that says more of them in other places.

    Of a wrapper of plain functions, which `_wrapping` looks behind, what each of these says.
    """
    found: list[Any] = []
    for _ in range(_WRAPPERS):
        if type(function) is not types.FunctionType:
            return None
        said = function.__dict__
        if "_partialmethod" in said or "__signature__" in said:
            return None
        by_name = function.__kwdefaults__ or {}
        found += (function, function.__code__, function.__defaults__, *by_name, *by_name.values())
        if "__wrapped__" not in said:
            return tuple(found)
        function = said["__wrapped__"]
    return None
