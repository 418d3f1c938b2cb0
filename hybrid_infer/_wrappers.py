"""The functions that stand for decorated ones, in a class or on their own.

What pickles functions by value, as cloudpickle does with those of a script, takes along all that they name: here that
is nothing but modules and the method.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Any

from hybrid_infer import _compilers, _defects, _own_thread


def of_class(method: Any) -> Callable[..., Any]:
    """What stands in a class for a decorated function: calls look up the state of their first argument."""
    function = method.function

    @functools.wraps(function)
    def hot(*args: Any, **kwargs: Any) -> Any:
        if _compilers.reading() or not args:
            return _own_thread.found(function)(*args, **kwargs)
        if id(args[0]) not in method.states and not method.can_own(args[0]):
            return method.static(*args, **kwargs)
        return method.answer(args[0], args[1:], kwargs)

    return _marked(hot, method)


def of_function(method: Any) -> Callable[..., Any]:
    """What stands for a decorated function that is none of a class: of tensors, or of a layer and what it is given."""
    function = method.function

    @functools.wraps(function)
    def hot(*args: Any, **kwargs: Any) -> Any:
        if _compilers.reading():
            return _own_thread.found(function)(*args, **kwargs)
        owner, rest, others = method.apart(args, kwargs)
        if owner:
            return method.owned.answer(owner[0], rest, others)
        state = method.alone(args, kwargs)
        if state is None:
            method.refuse("neither its arguments nor the objects that it uses hold a tensor of torch or paddle")
            return function(*args, **kwargs)
        noted = state.met.count
        try:
            return state.call((), args, kwargs)
        except Exception as fault:
            if not _defects.ours(fault, function):
                method.take_back(state, noted, args, kwargs, fault)
                raise
            defect = fault
        return _defects.answer(state, (), args, kwargs, defect)

    return _marked(hot, method)


def _marked(hot: Any, method: Any) -> Callable[..., Any]:
    hot.__hybrid_infer__ = method
    hot.__signature__ = inspect.signature(method.function)  # for those who look no further
    function: Callable[..., Any] = hot
    return function
