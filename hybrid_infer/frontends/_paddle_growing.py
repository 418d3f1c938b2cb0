"""Variables of a loop on values that have another size after a turn: in the loop and behind it that size is open.

The framework takes the sizes that a variable has before a loop for those of each turn. So that what the body asks of
them is computed from the tensor itself, a loop whose body turns out to change one is traced again, with it left open.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Sequence
from typing import Any

from hybrid_infer._errors import TraceError

_TRIES = 8  # of one trace; each finds at least one more size that changes
_REMEDY = "Decorate one turn of the loop"
#: By call: by the place of a loop in the trace, the places of variables and the axes whose sizes change.
_CHANGING: weakref.WeakKeyDictionary[Any, Changing] = weakref.WeakKeyDictionary()


class Changing:
    """The sizes that loops of one call are known to change."""

    def __init__(self) -> None:
        self._known: dict[int, set[tuple[int, int]]] = {}
        self._loops = 0

    def settled(self, trace: Callable[[], Any]) -> Any:
        """What `trace` gives once it finds no further size that changes."""
        for _ in range(_TRIES):
            before, self._loops = self._count(), 0
            try:
                found = trace()
            except TraceError:
                if self._count() == before:
                    raise
            else:
                if self._count() == before:
                    return found
        raise TraceError("the sizes of what a loop computes change from turn to turn", _REMEDY)

    def opening(self, make: Callable[..., Any], recorded: Callable[[Any], Sequence[int]]) -> Callable[..., Any]:
        """The framework's function that makes the operator of a loop of its variables; `recorded`: see ``Sizes``."""
        import paddle
        from paddle.base.libpaddle import pir

        def sizes_of(value: Any) -> Sequence[int]:
            return recorded(value) if value.is_dense_tensor_type() else ()

        def opened(value: Any, axes: set[int]) -> Any:
            if not axes:
                return value
            hidden = paddle.assign(value)
            sizes = [-1 if axis in axes else size for axis, size in enumerate(sizes_of(value))]
            hidden.set_type(pir.create_shaped_type(value.type(), sizes))
            hidden.stop_gradient = value.stop_gradient
            return hidden

        def run(condition: Any, values: list[Any]) -> Any:
            place, self._loops = self._loops, self._loops + 1
            axes = self._known.setdefault(place, set())
            given = [opened(value, {axis for which, axis in axes if which == k}) for k, value in enumerate(values)]
            return _Loop(make(condition, given), axes, sizes_of)

        return run

    def _count(self) -> int:
        return sum(map(len, self._known.values()))


def changing(tracee: Any) -> Changing:
    """What is known of a call's loops, where the call can be remembered."""
    try:
        return _CHANGING.setdefault(tracee, Changing())
    except TypeError:
        return Changing()


class _Loop:
    """The operator of a loop, which is looked at once its body is traced."""

    def __init__(self, made: Any, axes: set[tuple[int, int]], sizes_of: Callable[[Any], Sequence[int]]) -> None:
        self._made, self._axes, self._sizes_of = made, axes, sizes_of

    def __getattr__(self, name: str) -> Any:
        return getattr(self._made, name)

    def optimize_update(self) -> Any:
        (block,) = self._made.as_operation().blocks()
        after = [self._sizes_of(value) for value in block.ops[-1].operands_source()[1:]]
        before = [self._sizes_of(value) for value in block.args()]
        if any(len(had) != len(has) for had, has in zip(before, after, strict=True)):
            raise TraceError("a loop changes the number of dimensions of one of its variables", _REMEDY)
        found = {
            (place, axis)
            for place, (had, has) in enumerate(zip(before, after, strict=True))
            for axis, size in enumerate(had)
            if size not in (-1, has[axis])
        }
        if found - self._axes:
            self._axes |= found
            raise TraceError("a loop changes a size of one of its variables, which is known only now")
        return self._made.optimize_update()

