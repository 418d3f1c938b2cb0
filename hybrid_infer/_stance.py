"""The stance: what decorated methods do where nothing is compiled yet, for a part of the program or for the process."""

from __future__ import annotations

import functools
import inspect
import os
from collections.abc import Generator
from contextlib import ContextDecorator
from contextvars import ContextVar, Token
from typing import Any

from hybrid_infer import _options
from hybrid_infer._errors import OptionError
from hybrid_infer._typed import Given

EAGER, DEFAULT, BACKGROUND, FAIL = "eager", "default", "background", "fail_on_compile"

#: In the form in which the environment holds its values, so that one comparison at every call tells both.
_CODES: dict[Any, str] = {_options.as_environment(name): name for name in _options.STANCES}
_CHOSEN: ContextVar[Any] = ContextVar("hybrid_infer.stance", default=None)
#: The blocks that are open, by the object that opened them, which several threads and tasks may share.
_OPEN: ContextVar[tuple[tuple[int, Token[Any]], ...]] = ContextVar("hybrid_infer.stances", default=())
#: The stance is "eager" where ``(chosen() or look_up(STANCE)) == EAGERLY``, spelled out where each call asks.
chosen, look_up, STANCE, EAGERLY = _CHOSEN.get, _options.look_up, _options.STANCE, _options.as_environment(EAGER)
FAILING = _options.as_environment(FAIL)


class stance(ContextDecorator):
    """Choose what decorated methods do inside a ``with`` block or a decorated function, coroutine or generator.

    Blocks nest, and the innermost decides. A block is about the thread that it is entered in, and in ``asyncio`` about
    the task and those that it starts; a thread started inside it takes no part. A decorated generator's steps run under
    the stance, and not what its caller does between them. The whole process goes by
    ``HYBRID_INFER_STANCE``, which is read anew at each call: setting ``os.environ["HYBRID_INFER_STANCE"]`` in a
    running program takes effect at once, wherever no block says otherwise.

    Parameters
    ----------
    name : what to do.

        "default": the first call of its kind compiles and waits.

        "eager": the undecorated method answers, and nothing is looked up, compiled or compared.

        "background": the undecorated method answers while a static model is loaded or compiled for the calls to come,
        as the option ``background=True`` does for one method.

        "fail_on_compile": a call that would have to be captured or built raises ``StanceError``. Static models that
        are ready in memory or on disk are used; what is known to run eagerly still does.

    Raises
    ------
    OptionError
        there is no such stance.

    Examples
    --------
    >>> import hybrid_infer, torch
    >>> @hybrid_infer.inference
    ... def double(x):
    ...     return x + x
    >>> with hybrid_infer.stance("eager"):
    ...     double(torch.ones(2))
    tensor([2., 2.])
    >>> with hybrid_infer.stance("fail_on_compile"):
    ...     double(torch.ones(2))  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    hybrid_infer._errors.StanceError: ...double may not be compiled here: no static model...
    """

    def __init__(self, name: str) -> None:
        self.name = _checked(name)

    def _recreate_cm(self) -> stance:
        return stance(self.name)  # of a decorated function's own: calls may overlap in threads

    def __enter__(self) -> stance:
        token = _CHOSEN.set(_options.as_environment(self.name))
        _OPEN.set((*_OPEN.get(), (id(self), token)))
        return self

    def __exit__(self, *exception: object) -> None:
        opened = _OPEN.get()
        last = max(i for i, (number, _) in enumerate(opened) if number == id(self))
        _OPEN.set((*opened[:last], *opened[last + 1 :]))
        _CHOSEN.reset(opened[last][1])

    def __call__(self, function: Given) -> Given:
        inside: Given = self._around(function)
        return inside

    def _around(self, function: Any) -> Any:
        if inspect.isasyncgenfunction(function):
            return self._stepwise(function)
        if inspect.isgeneratorfunction(function):

            @functools.wraps(function)
            def steps(*args: Any, **kwargs: Any) -> Any:
                return (yield from _Steps(self.name, function(*args, **kwargs)))

            return steps
        if not inspect.iscoroutinefunction(function):
            return super().__call__(function)

        @functools.wraps(function)
        async def inside(*args: Any, **kwargs: Any) -> Any:
            with self._recreate_cm():
                return await function(*args, **kwargs)

        return inside


    def _stepwise(self, function: Any) -> Any:
        @functools.wraps(function)
        async def steps(*args: Any, **kwargs: Any) -> Any:
            inner = function(*args, **kwargs)
            step = inner.asend(None)
            try:
                while True:
                    with self._recreate_cm():
                        try:
                            found = await step
                        except StopAsyncIteration:
                            return
                    try:
                        step = inner.asend((yield found))
                    except Exception as fault:  # which the caller throws into it
                        step = inner.athrow(fault)
            finally:
                with self._recreate_cm():
                    await inner.aclose()

        return steps


class _Steps(Generator[Any, Any, Any]):
    """A generator each of whose steps runs under a stance; what happens between them does not."""

    def __init__(self, name: str, steps: Generator[Any, Any, Any]) -> None:
        self._name, self._steps = name, steps

    def send(self, value: Any) -> Any:
        with stance(self._name):
            return self._steps.send(value)

    def throw(self, *fault: Any) -> Any:
        with stance(self._name):
            return self._steps.throw(*fault)

    def close(self) -> None:
        with stance(self._name):
            self._steps.close()


def current() -> str:
    """The stance of this call. Raises OptionError where the environment names none that there is."""
    code = chosen() or look_up(STANCE)
    return _CODES[code] if code in _CODES else _checked(os.fsdecode(code)) if code else DEFAULT


def frozen() -> bool:
    """Does this call forbid to compile?"""
    return bool((chosen() or look_up(STANCE)) == FAILING)


def _checked(name: str) -> str:
    if name not in _options.STANCES:
        raise OptionError("stance", name, f"one of {', '.join(map(repr, _options.STANCES))}")
    return name
