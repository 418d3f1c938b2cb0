"""The user's functions as Paddle's tracer runs them: their source rewritten, so that control flow over tensors is kept.

Paddle keeps what it has rewritten for the life of the process, with copies of the globals and closures of that moment.
A trace gets rewrites of its own instead: it sees the program as it is now, and says what it assigns.
"""

from __future__ import annotations

import functools
import inspect
import linecache
import sys
import threading
import types
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import paddle
from paddle.jit.dy2static import program_translator
from paddle.jit.dy2static.utils import UndefinedVar

from hybrid_infer import _wrapping
from hybrid_infer._own_thread import exchanged
from hybrid_infer.frontends import (
    _paddle_augmented,
    _paddle_bare,
    _paddle_builtins,
    _paddle_eager,
    _paddle_fractions,
    _paddle_literals,
    _paddle_methods,
    _paddle_outdated,
    _paddle_reasons,
    _paddle_returns,
    _paddle_turns,
    _paddle_ways_out,
)
from hybrid_infer.frontends._paddle_tree import REACHED, TYPE, Observing, Translator

#: Rewritten syntax trees by source. They hold no values, and take most of the time that a rewrite takes.
_TREES: dict[str, Any] = {}
#: The same of functions with returns of their own on each side.
_TREES_APART: dict[str, Any] = {}
#: What rewritten loops call, as it is, by its name in rewritten code.
_OURS: dict[str, Any] = {
    _paddle_ways_out.ITEMS: _paddle_turns.with_a_way_out, _paddle_returns.LISTED: _paddle_turns.by_number,
    _paddle_returns.OPEN: _paddle_turns.open_ended, _paddle_returns.UNBOUND: UndefinedVar, **_paddle_augmented.CALLED,
}  # fmt: skip
#: Functions that Cython has made, of which Paddle takes none.
_COMPILED = "cython_function_or_method"
#: Of the framework, what tells of which line of a function each line of its rewritten form was made.
_ORIGINS = "create_and_update_origin_info_map"
#: Libraries of configurations work on no tensors, and what Paddle makes of their code may fail.
_AS_IT_IS = frozenset({"omegaconf", "ml_collections", "pydantic", "attr"})
#: Where the framework has models, and nothing else.
_MODELS = "paddle.vision.models."
#: And our own functions that a method may call while it is traced: what notes look-ups, and what decorates.
_OWN = frozenset({"hybrid_infer.state._noting", "hybrid_infer._api", "hybrid_infer._to_static"})
#: What Python itself keeps in a module: the second is set by a warning.
_PYTHONS = frozenset({"__builtins__", "__warningregistry__"})


def convert(function: Callable[..., Any]) -> Callable[..., Any]:
    """The user's function with its control flow over tensors rewritten; itself where it has no source."""
    if isinstance(function, functools.partial):
        return functools.partial(convert(function.func), *function.args, **function.keywords)
    if inspect.ismethod(function):
        return types.MethodType(convert(function.__func__), function.__self__)
    if not inspect.isfunction(function) or function.__name__ == "<lambda>" or _paddle_outdated.outdated(function):
        return function
    try:
        return program_translator.convert_to_static(_paddle_bare.without_decorators(function))
    except OSError:
        return function


def _left_out(name: str) -> bool:
    """Of the globals, what Paddle gives no rewritten function: the module's name and package, and its version, say."""
    return name.startswith("__") and name.endswith("__") and name not in _PYTHONS


def _decorated(function: types.FunctionType) -> bool:
    """Does the source start with a decorator? What is made of it runs them again, at each call."""
    code = function.__code__
    return linecache.getline(code.co_filename, code.co_firstlineno).lstrip().startswith("@")


def _undecorated(function: Any) -> Any:
    """What we decorated: the decorator in the source may be one of the program's, which is not to run again."""
    while (method := getattr(function, "__hybrid_infer__", None)) and function.__wrapped__ is method.function:
        function = method.function
    return function


def _compiled(function: Any) -> bool:
    """Has Cython made it, or what it is bound to?"""
    return type(getattr(function, "__func__", function)).__name__ == _COMPILED


def _around(function: Any) -> Any:
    """A function to be rewritten by itself: the program's wrapper, and without the decorators what it wraps.

    Paddle takes what is wrapped, and leaves out the wrapper or runs the decorators in the source again.
    """
    if not isinstance(function, types.FunctionType):
        return function
    lambdas = function.__code__.co_name == "<lambda>"  # of whose source nobody knows where it ends
    blind = _wrapping.blind(function) and function.__globals__.get("__name__") != "contextlib"
    if not hasattr(function, "__wrapped__") or blind or lambdas:
        return _paddle_bare.without_decorators(function)
    try:
        inspect.getsourcelines(function.__code__)
    except OSError:  # made by exec, as some libraries make their wrappers
        return function
    code = function.__code__  # of whose name is the source, which ``functools.wraps`` does not change
    wrapper = types.FunctionType(
        code, function.__globals__, code.co_name, function.__defaults__, function.__closure__
    )
    wrapper.__kwdefaults__, wrapper.__module__ = function.__kwdefaults__, function.__globals__.get("__name__", "")
    return _paddle_bare.without_decorators(wrapper)


class Rewrites(program_translator.FunctionCache):
    """The functions rewritten in one trace, on one thread; other threads go on with Paddle's own.

    `observing`, `rewritten`: see ``Tracee``; `standing_for`: what stands for a live tensor in the program, if anything;
    `mode`: what its functions are told of that; `backward`: gradients are to flow; `apart`: each way through a function
    ends with a return of its own (see ``_paddle_returns``).
    """

    def __init__(
        self, observing: Observing, rewritten: Callable[[types.FunctionType, types.CodeType], None],
        standing_for: Callable[[Any], Any] = lambda value: None, mode: _paddle_eager.Mode | None = None,
        backward: bool = False, apart: bool = False,
    ) -> None:  # fmt: skip
        super().__init__()
        self._backward, self._mode = backward, mode or _paddle_eager.Mode(eager=True)
        self._standing_for = standing_for
        self._observing, self._rewritten = observing, rewritten
        self._code_to_ast_caches = _TREES_APART if apart else _TREES
        self._dygraph_to_static = Translator(observing, apart)
        self._thread, self._shared = threading.get_ident(), program_translator._FUNCTION_CACHE
        self._scopes: list[tuple[dict[str, Any], dict[str, Any]]] = []
        #: The functions that were rewritten, while it is active: Paddle forgets those that nobody else holds, as one
        #: without its decorator.
        self._originals: list[Any] = []
        self._reached: Callable[[Any], Any] = lambda func: func

    def convert_with_cache(self, func: Any) -> Any:
        # A bound method is made anew at each look-up and gone again: nothing kept by it is ever found.
        function = func.__func__ if inspect.ismethod(func) else func
        mine = threading.get_ident() == self._thread
        return super().convert_with_cache(function) if mine else self._shared.convert_with_cache(func)

    def _convert(self, func: Any) -> Any:
        with self._observing(False):
            if any(map(_paddle_outdated.outdated, (func, inspect.unwrap(func)))):
                raise OSError("its file was edited since")  # Paddle then takes it as it is, which is as it was loaded
        func = _undecorated(func)
        wrapped, func = getattr(func, "__wrapped__", None), _around(func)
        func = func if hasattr(func, "__wrapped__") else _paddle_bare.as_written(func)
        original = inspect.unwrap(func)
        if original.__name__ == "<lambda>":
            raise OSError("the lines of a lambda are not its source alone")  # Paddle then takes it as it is
        try:
            made = super()._convert(func)
        except (SyntaxError, AttributeError) as fault:  # of what it writes, or of how: it has no form of all of Python
            raise OSError("Paddle cannot write it") from fault
        self._rewritten(original, made.__code__)
        self._originals.append(original)
        cells = dict(zip(original.__code__.co_freevars, original.__closure__ or (), strict=True))
        if wrapped is not None and original is func:  # which the framework would call as it is
            cells = {name: self._holding(cell, wrapped) for name, cell in cells.items()}
        closure = tuple(
            cells.get(name, cell) for name, cell in zip(made.__code__.co_freevars, made.__closure__ or (), strict=True)
        )
        scope = made.__globals__
        scope.update((name, value) for name, value in original.__globals__.items() if _left_out(name))
        defaults, by_name = original.__defaults__, original.__kwdefaults__
        if defaults is not None:  # sums of an eager tensor and a number end the process, where a program is made
            defaults = tuple(map(self._default, defaults))
        found = types.FunctionType(made.__code__, scope, made.__name__, defaults, closure or None)
        found.__kwdefaults__ = by_name and {name: self._default(value) for name, value in by_name.items()}
        for name, stands in (("isinstance", _paddle_eager.is_instance), *_paddle_builtins.EXTREMES.items()):
            scope.setdefault(name, stands)
        scope[REACHED], scope[TYPE] = self._reached, _paddle_eager.TYPE
        scope.update(_OURS)
        self._scopes.append((scope, dict(scope)))
        return self._observed(found) if _decorated(original) else found

    def left_in_branches(self) -> bool:
        """Has a function that was rewritten ways out that may be put apart?"""
        return any(map(_paddle_returns.left_in_branches, self._originals))

    def _default(self, value: Any) -> Any:
        known = self._standing_for(value) if isinstance(value, paddle.Tensor) else None
        return value if known is None else known

    def _holding(self, cell: types.CellType, wrapped: Any) -> types.CellType:
        """A variable of a wrapper: another one with the rewritten function, where it holds the one that is wrapped."""
        try:
            if cell.cell_contents is wrapped and isinstance(wrapped, types.FunctionType):
                return types.CellType(self.convert_with_cache(wrapped))  # whose lock the caller has
        except (OSError, ValueError):  # it has no source, or the cell is empty
            return cell
        return cell

    def _observed(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """The same, watched for the clock: it runs decorators, which are no part of the method's fingerprint."""

        def called(*args: Any, **kwargs: Any) -> Any:
            with self._observing(True):
                return function(*args, **kwargs)

        return called

    @contextmanager
    def active(self) -> Iterator[None]:
        calls: Any = sys.modules["paddle.jit.dy2static.convert_call_func"]
        rewritten: Any = sys.modules["paddle.jit.dy2static"]
        translator: Any = program_translator
        places = [
            (calls, "is_unsupported", self._once),
            (rewritten, "Call", self._reaching),
            (rewritten, "AsDtype", _paddle_fractions.converting),
            (translator, "func_to_source_code", self._unobserved),
            (translator, "attach_origin_info", self._unobserved),
            (translator, _ORIGINS, self._lines_later),
            (rewritten.utils, "ast_to_source_code", self._unobserved),
            (translator, "is_paddle_func", self._but_for_models),
            (calls, "is_paddle_func", self._but_for_models),
        ]
        changes = [(module, name, made(getattr(module, name))) for module, name, made in places]
        try:
            with exchanged((translator, "_FUNCTION_CACHE", self), *changes):
                yield
        finally:
            self._originals.clear()

    def _but_for_models(self, is_the_frameworks: Callable[..., bool]) -> Callable[..., bool]:
        """The framework's own models are code like the program's, which asks for sizes that vary."""

        def asked(func: Any, *rest: Any, **named: Any) -> bool:
            mine = threading.get_ident() == self._thread
            decides = func.forward if isinstance(func, paddle.nn.Layer) else func
            model = mine and str(getattr(decides, "__module__", "")).startswith(_MODELS)
            return not model and is_the_frameworks(func, *rest, **named)

        return asked

    def _unobserved(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """A part of the rewriting that runs none of the user's code, and makes many calls."""

        def called(*args: Any, **kwargs: Any) -> Any:
            if threading.get_ident() != self._thread:
                return function(*args, **kwargs)
            with self._observing(False):
                return function(*args, **kwargs)

        return called

    def _lines_later(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """Of which line each line was made, which takes half the time of a rewrite, is told where somebody asks."""

        def called(tree: Any, made: Any, *rest: Any, **named: Any) -> Any:
            if threading.get_ident() != self._thread or rest or named:
                return function(tree, made, *rest, **named)
            code, tell = made.__code__, self._unobserved(function)  # not the function, which holds what it can reach
            _paddle_reasons.tell_later(code, lambda: tell(tree, code))
            return None

        return called

    def _reaching(self, call: Callable[[Any], Any]) -> Callable[[Any], Any]:
        """What rewritten code asks for each function that it calls: also those that it has others call."""

        def reach(func: Any) -> Any:
            if threading.get_ident() != self._thread:
                return call(func)
            if self._dygraph_to_static.busy or _compiled(func) or func is _paddle_eager.TYPE:
                return func
            if type(func) is functools.partial:
                return functools.partial(reach(func.func), *func.args, **func.keywords)
            if any(func is each for each in _OURS.values()):
                return func
            if func is functools.reduce:
                return lambda each, *rest: func(reached(each), *rest)
            plain = _paddle_eager.uncached(func) or (None if self._backward else _paddle_eager.forward_of(func))
            if plain is not None:
                return reach(plain)
            stands = _paddle_literals.assigning(func) or _paddle_methods.rounding(func)
            stands = stands or _paddle_fractions.function(func)
            if stands is None and _paddle_eager.is_the_programs(1):
                stands = self._mode.told(func)
            if func is reached:
                return func
            made = stands or call(func)
            return convert(func) if made is func and self._passed_over(func) else made

        def reached(func: Any) -> Any:
            return reach(func) if callable(func) and not isinstance(func, type) else func

        self._reached = reached
        return reach

    def _passed_over(self, func: Any) -> bool:
        """Has the framework taken a function for one that is rewritten, as the globals of its module lack it?"""
        if type(func) is not types.FunctionType or REACHED in func.__globals__ or inspect.isgeneratorfunction(func):
            return False
        if func.__globals__.get("__name__", "").partition(".")[0] == __name__.partition(".")[0]:
            return False  # what we have put in the place of the framework's own
        calls: Any = sys.modules["paddle.jit.dy2static.convert_call_func"]
        options = calls.TransformOptions
        as_it_is = calls.is_unsupported(func) or not options.check_fn_need_transform(func, options.ToStaticMode.AST)
        return not as_it_is and func not in map(inspect.unwrap, filter(inspect.isfunction, func.__globals__.values()))

    def _once(self, is_unsupported: Callable[[Any], bool]) -> Callable[[Any], bool]:
        """The framework goes through all that NumPy, os and others define for each call that it meets; once will do."""
        known: dict[tuple[bool, int, int], tuple[Any, bool]] = {}

        def asked(func: Any) -> bool:
            if threading.get_ident() != self._thread:
                return is_unsupported(func)
            layer = isinstance(func, paddle.nn.Layer)
            decides = func.forward if layer else func
            owner = type(decides.__self__) if inspect.ismethod(decides) else None
            decides = decides if owner is None else decides.__func__
            key = layer, id(decides), id(owner)
            if key not in known:
                module = str(getattr(decides, "__module__", ""))
                as_it_is = module in _OWN or module.partition(".")[0] in _AS_IT_IS
                with self._observing(False):  # held, so that no other object has its address
                    known[key] = decides, as_it_is or is_unsupported(func)
            return known[key][1]

        return asked

    def assigned(self) -> list[str]:
        """Globals that rewritten functions have assigned in their copies; the program's are as they were."""
        found = []
        for scope, before in self._scopes:
            found += [n for n, v in scope.items() if n not in _PYTHONS and (n not in before or before[n] is not v)]
        return list(dict.fromkeys(found))
