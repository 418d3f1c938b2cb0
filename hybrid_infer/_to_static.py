"""``to_static()``: one decorated class is trained through its framework's own static path, then served by engines."""

from __future__ import annotations

import copy
import functools
import inspect
import logging
import types
import weakref
from collections.abc import Callable
from typing import Any, overload

from hybrid_infer import _api, _compilers, _frontends, _method, _options, _stance
from hybrid_infer._errors import CaptureError, OptionError
from hybrid_infer._method import Bound, HotMethod
from hybrid_infer._typed import Given
from hybrid_infer.state import _roots

_log = logging.getLogger("hybrid_infer")


@overload
def to_static(
    function: None = None, input_spec: Any = None, build_strategy: Any = None, **options: Any
) -> Callable[[Given], Given]: ...


@overload
def to_static(function: Given, input_spec: Any = None, build_strategy: Any = None, **options: Any) -> Given: ...


def to_static(function: Any = None, input_spec: Any = None, build_strategy: Any = None, **options: Any) -> Any:
    """Train a method through its framework's static path, and serve it from a static graph.

    While gradients are on and the layer is in training mode, calls go through ``torch.compile`` or
    ``paddle.jit.to_static``, and gradients flow. After ``eval()``, or under ``no_grad()``, they are served as
    ``inference()`` serves them. A function that is no method is trained where an argument requires a gradient, or a
    layer that it uses is in training mode. Where the static path fails on a call that runs eagerly, the method is
    trained eagerly from then on, and one log line gives the reason.

    A branch or a loop on the value of a tensor is part of the served graph: in Paddle as plain ``if`` and ``while``, in
    PyTorch as ``torch.cond`` and ``torch.while_loop``.

    Parameters
    ----------
    function : a function, a method of a class, a bound method, a ``torch.nn.Module`` or a ``paddle.nn.Layer``; None
        gives a decorator. A layer is given back with its ``forward`` replaced.
    input_spec : specs of the inputs, compiled for before the first call that is served (see ``inference``).
    build_strategy : a ``paddle.static.BuildStrategy`` for the training path. PyTorch has none: refused there.
    options : those of ``inference()``, by name.

    Raises
    ------
    OptionError
        a value is not allowed, or a build strategy was given for a layer of PyTorch. TypeError: an unknown option, or
        something that is no function or layer.

    Examples
    --------
    >>> import torch
    >>> from hybrid_infer import to_static
    >>> class Model(torch.nn.Module):
    ...     def __init__(self):
    ...         super().__init__()
    ...         self.linear = torch.nn.Linear(4, 1)
    ...     @to_static
    ...     def forward(self, x):
    ...         return self.linear(x)
    >>> model = Model().eval()
    >>> with torch.no_grad():
    ...     model(torch.ones(2, 4)).shape
    torch.Size([2, 1])
    """
    if build_strategy is not None and _framework(build_strategy) != "paddle":
        raise OptionError("build_strategy", build_strategy, "None or a paddle.static.BuildStrategy")
    _options.check_names(options, function="to_static()")
    made = _options.make({"backend": "auto", **options, "input_spec": input_spec})

    def decorate(target: Any) -> Any:
        return _decorate(target, made, build_strategy)

    return decorate if function is None else decorate(function)


def _framework(value: Any) -> str:
    return type(value).__module__.partition(".")[0]


def _decorate(target: Any, options: _options.Options, strategy: Any) -> Any:
    if isinstance(target, staticmethod):
        return staticmethod(_decorate(target.__func__, options, strategy))
    if isinstance(target, (types.MethodType, Bound)):
        return _bound(target, options, strategy)
    frontend = _frontends.of(target)
    if frontend is not None and hasattr(target, "forward"):
        _refuse(strategy, frontend)
        target.forward = _bound(_api.method_of(target, "to_static"), options, strategy)
        return target
    served = _api.wrap(target, options, "to_static")
    if served is target:
        return target
    method: HotMethod = served.__hybrid_infer__
    training = _Training(method.function, strategy, method)

    @functools.wraps(method.function)
    def static(*args: Any, **kwargs: Any) -> Any:
        owner, rest, others = (args[:1], args[1:], kwargs) if method.has_owner else method.apart(args, kwargs)
        if _compilers.reading():
            return method.function(*args, **kwargs)
        frontend = training.wanted(owner, rest, others)
        return served(*args, **kwargs) if frontend is None else training.run(frontend, owner, rest, others)

    static.__hybrid_infer__ = method  # type: ignore[attr-defined]
    static.__signature__ = inspect.signature(method.function)  # type: ignore[attr-defined]
    return static


def _bound(target: Any, options: _options.Options, strategy: Any) -> StaticBound:
    _api.refuse_odd(target, "to_static")
    function, owner = _method.undecorated(target.__func__), target.__self__
    frontend = _frontends.of(owner)
    if frontend is not None:
        _refuse(strategy, frontend)
    return StaticBound(HotMethod(function, options, has_owner=True), owner, strategy)


def _refuse(strategy: Any, frontend: Any) -> None:
    if strategy is not None and frontend.name != "paddle":
        raise OptionError("build_strategy", strategy, f"None for a layer of {frontend.name}")


class StaticBound(Bound):
    """A method of one instance that is trained and served; copies and pickles follow the instance."""

    def __init__(self, method: HotMethod, owner: Any, strategy: Any) -> None:
        super().__init__(method, owner)
        self._strategy = strategy
        self._training = _Training(method.function, strategy, method)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        owner = (self.__self__,)
        if _compilers.reading():
            return self.__func__(*owner, *args, **kwargs)
        frontend = self._training.wanted(owner, args, kwargs)
        return super().__call__(*args, **kwargs) if frontend is None else self._training.run(
            frontend, owner, args, kwargs
        )

    def __deepcopy__(self, memo: dict[int, Any]) -> Bound:
        return StaticBound(self.__hybrid_infer__, copy.deepcopy(self.__self__, memo), self._strategy)

    def __reduce__(self) -> Any:
        _, arguments = super().__reduce__()
        return _rebind, (*arguments, self._strategy)


def _rebind(owner: Any, holder: Any, name: Any, options: _options.Options, strategy: Any) -> StaticBound:
    return _bound(types.MethodType(_method.function_of(holder, name), owner), options, strategy)


class _Training:
    """The framework's static form of a function, made when it is first trained."""

    def __init__(self, function: Any, strategy: Any, method: HotMethod) -> None:
        self._function, self._strategy, self._method = function, strategy, method
        self._static: Callable[..., Any] | None = None
        self._layers: list[weakref.ref[Any]] | None = None
        self._failed = False

    def __reduce__(self) -> Any:
        return _Training, (self._function, self._strategy, self._method)

    def wanted(self, owner: tuple[Any, ...], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """The frontend, if the call is one of training; else None."""
        if owner:
            if not getattr(owner[0], "training", False):
                return None
            frontend = _frontends.of(owner[0])
            return frontend if frontend is not None and frontend.grad_enabled() else None
        values = [*args, *kwargs.values()]
        frontend = _frontends.of_values(values)
        if frontend is None or not frontend.grad_enabled():
            return None
        tensors = [value for value in values if isinstance(value, frontend.tensor_type)]
        if any(map(frontend.requires_grad, tensors)):
            return frontend
        return frontend if any(getattr(layer, "training", False) for layer in self._used(frontend)) else None

    def _used(self, frontend: Any) -> list[Any]:
        """The layers that a function refers to."""
        if self._layers is None:
            found = _roots.find(self._function, frontend).values()
            self._layers = [weakref.ref(value) for value in found if isinstance(value, frontend.layer_type)]
        return [layer for reference in self._layers if (layer := reference()) is not None]

    def run(self, frontend: Any, owner: tuple[Any, ...], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        _refuse(self._strategy, frontend)
        result = self._answer(frontend, owner, args, kwargs)
        self._method.meet(owner, args, kwargs)  # not a call that raises
        return result

    def _answer(self, frontend: Any, owner: tuple[Any, ...], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        eager = functools.partial(self._function, *owner, *args, **kwargs)
        if self._failed or frontend.transparent() or _stance.current() == _stance.EAGER:
            return eager()
        try:
            if self._static is None:
                self._static = frontend.static_path(self._function, self._strategy)
            return self._static(*owner, *args, **kwargs)
        except Exception as fault:
            result = eager()  # where it fails as well, the call is at fault
            self._failed = True
            said = next((line.strip() for line in str(fault).splitlines() if line.strip()), "no reason given")
            reason = f"the static path of {frontend.name} failed: {type(fault).__name__}: {said}"
            if self._method.options.fallback == "error":
                raise CaptureError(self._method.name, reason) from fault
            _log.warning("%s is trained eagerly: %s", self._method.name, reason)
            _log.debug("%s: %s", self._method.name, reason, exc_info=True)
            return result
