"""What a method that is traced is told of what its tensors have to do with gradients: what it would be told eagerly.

Nothing is recorded meanwhile, so that what it computes has no history. What it is given may have one.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from hybrid_infer._errors import TraceError
from hybrid_infer._own_thread import exchanged

#: Of a tensor that has no history.
_COMPUTED = {"stop_gradient": True, "requires_grad": False, "is_leaf": True, "grad_fn": None, "grad": None}
#: Of which only that there is none can be told.
_OBJECTS = ("grad_fn", "grad")


@contextmanager
def told(live: Sequence[tuple[Any, Any]]) -> Iterator[None]:
    """While a method is traced on this thread; `live`: what stands for each live tensor, and that tensor."""
    import paddle

    kind, thread = paddle.pir.Value, threading.get_ident()
    put: list[tuple[Any, str, Any]] = []

    def asks(frame: Any) -> bool:
        module = (frame.f_globals.get("__name__") or "").partition(".")[0]
        return threading.get_ident() == thread and module not in ("paddle", "hybrid_infer")

    def answer(value: Any, name: str) -> Any:
        for other, set_name, flag in reversed(put):
            if other.is_same(value):
                if set_name == name:
                    return flag
                raise TraceError(f"it sets {set_name} of a tensor, and asks for {name}")
        for other, tensor in live:
            if other.is_same(value):
                found = getattr(tensor, name)
                if name in _OBJECTS and found is not None:
                    raise TraceError(f"it asks for the {name} of a tensor that has one", "Ask outside of the method")
                return found
        if name not in _COMPUTED:
            raise AttributeError(name)
        return _COMPUTED[name]

    def asked(name: str, before: Any) -> property:
        def get(value: Any) -> Any:
            if asks(sys._getframe(1)):
                return answer(value, name)
            if before is None:
                raise AttributeError(name)
            return before.fget(value)

        def put_down(value: Any, flag: Any) -> None:
            if asks(sys._getframe(1)):
                put.append((value, name, flag))
            if before is None:
                raise AttributeError(name)
            before.fset(value, flag)

        return property(get, put_down)

    names = (*_COMPUTED, "trainable")
    with exchanged(*((kind, name, asked(name, vars(kind).get(name))) for name in names)):
        yield
