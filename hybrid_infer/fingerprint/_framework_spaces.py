"""A look through the framework's namespaces for functions of somebody else, of which most names need one look only.

They hold thousands of names, and each look-up of each instance asks anew.
"""

from __future__ import annotations

import operator
import types
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from hybrid_infer._own_thread import behind

#: (name, value) -> is that a function of somebody else?
Test = Callable[[str, Any], bool]


class _Looked:
    """A namespace in which all names are the framework's own, but for those that are ``open``.

    For as long as it has these names, values of these classes, these functions with this code, and these properties. Of
    what may be a program's, nothing is kept.
    """

    def __init__(self, names: list[str], values: list[Any], foreign: Test) -> None:
        self._names, self._kinds = names, [*map(type, values)]
        self.open: list[str] = []
        self._places: list[int] = []
        self._forms: list[tuple[int, Any]] = []
        for place, (name, held) in enumerate(zip(names, values, strict=True)):
            if _settled(held) and not foreign(name, held):
                if type(held) is types.FunctionType:
                    self._places.append(place)
                elif type(held) in _FORMS:
                    self._forms.append((place, held))
            else:
                self.open.append(name)
        self._functions = [values[place] for place in self._places]
        self._codes = [function.__code__ for function in self._functions]

    def holds(self, names: list[str], values: list[Any]) -> bool:
        if names != self._names or not all(map(operator.is_, map(type, values), self._kinds)):
            return False
        if not all(values[place] is held for place, held in self._forms):
            return False
        functions = map(values.__getitem__, self._places)
        return all(map(operator.is_, functions, self._functions)) and all(
            map(operator.is_, map(_CODE, self._functions), self._codes)
        )


#: What functions are in a class.
_FORMS = (property, staticmethod, classmethod)
_CODE = operator.attrgetter("__code__")
#: Of a class: it was made in Python, or in C as Python makes one, so that what its instances do may change.
_MADE = 1 << 9
_looked: dict[str, _Looked] = {}


def strange(where: str, space: Mapping[str, Any], foreign: Test) -> Iterator[tuple[str, Any]]:
    """The functions of somebody else in the namespace that is called `where`, by their names, in order."""
    names, values = list(space), list(space.values())
    if len(names) != len(values):  # another thread has just added one
        return strange(where, dict(space), foreign)
    looked = _looked.get(where)
    if looked is None or not looked.holds(names, values):
        looked = _looked[where] = _Looked(names, values, foreign)
    found = ((name, behind(space.get(name))) for name in sorted(looked.open))
    return ((name, value) for name, value in found if foreign(name, value))


def _settled(held: Any) -> bool:
    """Is the answer for a value the same for as long as its class is, and the code of a function?"""
    if type(held) is types.FunctionType:
        # What is made by exec comes from where a module says that it does.
        return behind(held) is held and not held.__code__.co_filename.startswith("<")
    kind = type(held)
    if kind in _FORMS or kind is types.BuiltinFunctionType or issubclass(kind, (type, types.ModuleType)):
        return True
    return not callable(held) and not kind.__flags__ & _MADE
