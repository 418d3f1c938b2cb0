"""What Paddle raises where a trace is asked for a tensor's value may not end in the program (see ``_swallowed``)."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

from hybrid_infer._errors import TraceError
from hybrid_infer._own_thread import exchanged, replaced
from hybrid_infer.frontends._swallowed import Errors

#: What Python or the program calls to get at values, and symbolic tensors refuse.
_QUESTIONS = ("__bool__", "__int__", "__float__", "__complex__", "__index__", "__format__", "numpy", "tolist")


@contextmanager
def refused() -> Iterator[Callable[[], None]]:
    """While a method is traced on this thread; what it gives raises TraceError if the method caught such an error."""
    import paddle

    from hybrid_infer.frontends._paddle_reasons import explained

    errors = Errors("paddle")

    def passing(function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        try:
            return function(*args, **kwargs)
        except Exception as fault:
            errors.add(fault)
            raise

    def check() -> None:
        fault = errors.caught()
        if isinstance(fault, TraceError):
            raise fault
        if fault is not None:
            raise TraceError(*explained(fault)) from fault

    value_type = paddle.pir.Value
    added = [(value_type, n, getattr(value_type, n, _index)) for n in _QUESTIONS if n not in vars(value_type)]
    try:
        with exchanged(*added), ExitStack() as stack:
            stack.enter_context(replaced(TraceError, "__init__", errors.made))
            for name in _QUESTIONS:
                stack.enter_context(replaced(value_type, name, passing))
            yield check
    finally:
        errors.clear()


def _index(value: Any) -> int:
    """Eager tensors have ``__index__``; without one, Python itself would refuse."""
    raise TypeError("index(Tensor) is not supported in static graph mode")
