"""What a loop of the user's code goes through, one by one, as Python takes it.

Paddle makes a list of it before the first turn, and goes by number. So it misses what the loop itself changes in it,
and takes all that an iterator has, of which the method may read the rest. Where a loop has a way out, one more is asked
for than the loop takes: nobody sees that where nothing else has the iterator, and where to take from it does no more.
"""

from __future__ import annotations

import itertools
import sys
from collections import OrderedDict, deque
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import paddle

from hybrid_infer._errors import TraceError

#: What is taken apart by number in a program.
_TENSORS = (paddle.Tensor, paddle.pir.Value, paddle.static.Variable)


_TAKES_MORE = "Paddle takes more of an iterator than a loop with a way out", "Go through a list of it there"


class Turns:
    """By number, and only in turn: what `values` give when they are asked for it."""

    def __init__(self, values: Iterable[Any]) -> None:
        self._rest = iter(values)
        self._taken, self._latest, self._ended = 0, None, False

    def __getitem__(self, place: int) -> Any:
        if not self > place or place != self._taken - 1:
            raise IndexError(place)
        return self._latest

    def __gt__(self, place: int) -> bool:
        """Rewritten loops ask it whether a turn's number is less than the length."""
        while self._taken <= place and not self._ended:
            try:
                self._latest = next(self._rest)
            except StopIteration:
                self._latest, self._ended = None, True
            else:
                self._taken += 1
        return self._taken > place


class Listed:
    """Items by number, in any order, as a loop that goes through them in turn would find them."""

    __slots__ = ("_asked", "_items", "_size")  # and nothing that counts as changed by a side of a branch

    def __init__(self, items: Any, size: int) -> None:
        self._items, self._size, self._asked = items, size, 0

    def __gt__(self, place: int) -> bool:
        """Is there one of this number?"""
        self._asked += 1
        if place >= _DEEP or self._asked > _ASKED:
            raise TraceError(
                f"a loop through what is no tensor ends by the values of a tensor, after more than {_DEEP} turns",
                "Compute all turns and choose among what they give (paddle.where)",
            )
        return place < (len(self._items) if self._size < 0 else self._size)

    def __getitem__(self, place: int) -> Any:
        from paddle.jit.dy2static import convert_operators

        return convert_operators.convert_load(self._items)[place]  # and what was written to it since


_DEEP = 16  # turns of such a loop, each of which is a block in the one before
_ASKED = 64  # of them on all sides of its branches


class _ByNumber:
    def __getitem__(self, place: int) -> Any:
        raise IndexError(place)


_DICTS: tuple[dict[Any, Any], ...] = {}, OrderedDict()
_CONTAINERS: tuple[Any, ...] = (
    (), [], "", "\N{DEGREE SIGN}", b"", range(0), range(1 << 70), set(), deque(),
    *(view for made in _DICTS for view in (made, made.values(), made.items())),
)  # fmt: skip
#: Iterators that do nothing but give the next: of all kinds of containers, and of what has elements by number.
_QUIET: tuple[type, ...] = (
    *(type(iter(each)) for each in _CONTAINERS),
    *(type(reversed(each)) for each in _CONTAINERS if hasattr(each, "__reversed__")),
    type(iter(_ByNumber())), reversed, itertools.count, itertools.repeat,
)  # fmt: skip


def one_by_one(convert: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """What rewritten code goes through, in the place of the framework's list."""
    return lambda values: values if isinstance(values, Turns) else _turns(values) or convert(values)


def as_long_as_there_are(convert: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """And with which it compares the number of a turn, in the place of a length."""
    return lambda values: values if isinstance(values, Turns) else convert(values)


def _turns(values: Any) -> Turns | None:
    return None if isinstance(values, _TENSORS) or not hasattr(values, "__iter__") else Turns(values)


def with_a_way_out(values: Any, fresh: bool) -> Any:
    """The same, of which a loop may leave something; `fresh`: a call gave it, and may have kept it."""
    if isinstance(values, Iterator) and not (fresh and sys.getrefcount(values) <= _once() and _leaves_no_trace(values)):
        raise TraceError(*_TAKES_MORE)
    return _turns(values) or values


def by_number(values: Any, fresh: bool) -> Listed:
    """What a loop goes through that the values of a tensor end; `fresh`: a call gave it, and may have kept it."""
    if isinstance(values, _TENSORS):
        size = values.shape[0] if values.shape else -1
        if not isinstance(size, int) or size < 0:
            raise TraceError("a loop through what has a size that varies ends by the values of a tensor")
        return Listed(values, size)
    if isinstance(values, (list, tuple, range)):
        return Listed(values, -1)
    if isinstance(values, Iterator) and not (fresh and sys.getrefcount(values) <= _once() and _leaves_no_trace(values)):
        raise TraceError(*_TAKES_MORE)
    if not hasattr(values, "__iter__"):
        return Listed(values, -1)
    items = tuple(itertools.islice(values, _DEEP + 1))
    return Listed(items, len(items))


def open_ended() -> Any:
    """True, of which the tracer makes a loop whatever else its condition is."""
    return paddle.full([], True, "bool")


def _once() -> int:
    """How many hold, in a function that is called with it, what only its caller's expression has."""

    def held(values: Any) -> int:
        return sys.getrefcount(values)

    return held(iter(()))


def _leaves_no_trace(values: Any) -> bool:
    """Does nobody see how many were taken of an iterator that only a loop has?"""
    if type(values) not in _ALONE:
        return type(values) in _QUIET or _is_the_frameworks(values)
    alone = all(count == _ALONE[type(values)] for count in _holders(values))
    return alone and all(map(_leaves_no_trace, _held(values)))


def _held(values: Any) -> tuple[Any, ...]:
    """The iterators from which one of ``zip`` or ``enumerate`` takes."""
    held: tuple[Any, ...] = values.__reduce__()[1]
    return held[:1] if isinstance(values, enumerate) else held


def _holders(values: Any) -> list[int]:
    """How many hold each of them."""
    return [sys.getrefcount(each) for each in _held(values)]


#: How many that are where nothing else does.
_ALONE: dict[type, int] = {zip: _holders(zip(()))[0], enumerate: _holders(enumerate(()))[0]}


def _is_the_frameworks(values: Iterator[Any]) -> bool:
    """``layer.named_parameters()`` and its like."""
    frame = getattr(values, "gi_frame", None)
    return frame is not None and str(frame.f_globals.get("__name__")).startswith("paddle.")
