"""Mappings that are written in Python: `collections.UserDict` and what is derived from it, objects with a dict inside.

The tokenizers of transformers give such a one, a `BatchEncoding`. Beside its dict it keeps what a library in C knows of
the text, which no signature can tell from another text's. A copy of it has `UNSEEN` there, and a method that looks at
that is refused.
"""

from __future__ import annotations

import enum
from collections import UserDict
from collections.abc import Callable, Collection, Iterable
from typing import Any

from hybrid_infer.objects import _state
from hybrid_infer.state._reads import Recorder


class Unseen(enum.Enum):
    """What stands in a signature, and in copies of a call, for what no signature can tell of."""

    UNSEEN = "unseen"


UNSEEN = Unseen.UNSEEN


def is_mapping(kind: type) -> bool:
    """Is an instance no more than its attributes, of which one, ``data``, is its dict?"""
    return UserDict in kind.__mro__ and _state.plain(kind, ("__copy__", "__getstate__", "__setstate__"))


def attributes(value: Any, kind: type, leaves: Collection[type] = ()) -> dict[str, Any]:
    """The attributes of an object that signatures tell of; `leaves`: the classes of tensors and of constants.

    Of a mapping that is its dict, and beside that single values.
    """
    state: dict[str, Any] = vars(value)
    if UserDict not in kind.__mro__:
        return state
    return {name: UNSEEN if _unseen(name, held, leaves) else held for name, held in state.items()}


def _unseen(name: str, held: Any, leaves: Collection[type]) -> bool:
    return name != "data" and type(held) not in _state.PLAIN and type(held) not in leaves


class Watched:
    """The copies of such arguments, while a method is traced on them: what it looks at there is noted."""

    def __init__(self, objects: Iterable[Any], recorder: Recorder, past: Callable[[Any], bool]) -> None:
        """`past`: may the code look at an object so that nobody notes it?"""
        self._recorder = recorder
        partly = [each for each in objects if UserDict in type(each).__mro__ and UNSEEN in vars(each).values()]
        self._unnoted = [each for each in partly if past(each)]
        self._noted = [each for each in partly if not past(each)]
        self._unnoted += recorder.watch(self._noted)

    def read(self) -> list[str]:
        """What the method has looked at, or may have, that it was not given."""
        found = [_told(each, "may read", name) for each in self._unnoted for name in _names(each)]
        for each in self._noted:
            names = getattr(self._recorder.looked.get(id(each)), "names", ())
            read = (name for name in _names(each) if name in names or "__dict__" in names)
            found += [_told(each, "reads", name) for name in read]
        return found


def _names(value: Any) -> list[str]:
    return sorted(name for name, held in vars(value).items() if held is UNSEEN)


def _told(value: Any, does: str, name: str) -> str:
    return f"it {does} the attribute {name} of an argument of class {type(value).__name__}, which no signature tells of"
