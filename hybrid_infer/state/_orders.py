"""Sets whose order the code goes by: it is part of what a static model is valid for.

Texts, and all that is hashed by its address, stand in a set in another order in each process, so that a key and reads
have sets sorted. Code that only asks what is in one is answered the same everywhere. Where it may go through one, its
order counts too, beside its elements; and their hashes, where it makes another set of it. So do the hashes of texts of
which it makes a set that it goes through (see `_made`): each order has a static model of its own.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from types import CodeType
from typing import Any

from hybrid_infer import _fork_safe, _keys
from hybrid_infer.fingerprint import _iteration, _made
from hybrid_infer.fingerprint._fingerprint import Fingerprint
from hybrid_infer.fingerprint._iteration import Body, Use
from hybrid_infer.fingerprint._outline import Outline
from hybrid_infer.objects import _state, _unordered
from hybrid_infer.state import _roots

#: The kinds of reads that are about an order.
KINDS = {"order": Use.ORDER, "hashes": Use.HASHES, "made": Use.NONE}
_KIND = {Use.ORDER: "order", Use.HASHES: "hashes"}
#: Two texts whose hashes tell those of all others.
_SEEDED = ("north", "south")

Found = list[tuple[str, Collection[Any]]]


class Orders:
    """What code makes of the sets that it has under names. `leaves`: classes of tensors, layers and constants.

    `kinds`: the classes of the layers. What makes these has run before, whatever sets it went through.
    """

    def __init__(
        self, codes: Sequence[Fingerprint], leaves: tuple[type, ...], kinds: Collection[type] = ()
    ) -> None:
        self._codes, self._leaves, self._kinds = codes, leaves, kinds
        self._use = functools.cache(lambda name: _iteration.of_name(name, self._bodies))
        self._pieces = functools.cache(_pieces)

    @_fork_safe.cached_property
    def _bodies(self) -> list[Body]:
        return [body for code in self._codes for function, _ in code.followed for body in self._pieces(function)]

    def read(self, holder: Any, name: str, held: Any, looked: bool) -> Iterator[tuple[str, str]]:
        """Kind and digest of the orders that what an attribute holds has, or gives what is made of it.

        `looked`: somebody has looked it up by its name. Where no code of the program has, it is a library's.
        """
        if name in self._elements[0] and (hashes := _unordered.hashes_in(held)):
            yield "made", _keys.digest(hashes)
        if not (found := self._sets(name, held)):
            return

        def use(under: str) -> Use | None:
            known = self._use(under)
            if known is not None or not looked or under != name:
                return known
            of_class = _iteration.of_name(name, _methods(type(holder)))
            return Use.HASHES if of_class is None else of_class

        most = _most(found, use)
        if most:
            yield _KIND[most], _digest(found, most)

    def again(self, kind: str, name: str, held: Any) -> str:
        """The digest of such a read now."""
        if kind == "made":
            return _keys.digest(_unordered.hashes_in(held))
        return _digest(self._sets(name, held), KINDS[kind])

    def of_code(self, left_out: Collection[int]) -> list[list[Any]]:
        """The same of what code has under names beside attributes, as data for a key. `left_out`: ids of objects."""
        found: list[list[Any]] = []
        names, anywhere = self._elements
        if anywhere:
            found.append(["made", "", "", 0, _keys.digest([*map(hash, _SEEDED)])])
        for kind, holder, name, held, use in (row for code in self._codes for row in self._rows(code)):
            if name in names and id(held) not in left_out and (hashes := _unordered.hashes_in(held)):
                found.append([f"made of {kind}", holder, name, 0, _keys.digest(hashes)])
            sets = self._sets(name, held) if id(held) not in left_out else []
            most = _most(sets, functools.partial(self._use_of, name, use))
            if most:
                found.append([kind, holder, name, int(most), _digest(sets, most)])
        for body in self._bodies:
            for const, most in _iteration.of_constants(body, functools.partial(self._of_further, body.code)):
                if most:
                    found.append(["constant", body.code.co_name, "", int(most), _digest([("", const)], most)])
        return sorted(found)

    @_fork_safe.cached_property
    def _elements(self) -> tuple[Collection[str], bool]:
        """The names that lead to elements of sets which code makes and goes through; and may others be in some?"""
        inits = [vars(base).get("__init__") for kind in self._kinds for base in kind.__mro__]
        made = {id(getattr(each, "__code__", None)) for each in inits}
        found = [
            names
            for body in self._bodies
            if id(body.code) not in made
            for names in _made.of(body, functools.partial(self._of_further, body.code))
        ]
        return frozenset().union(*filter(None, found)), None in found

    def _use_of(self, name: str, use: Callable[[], Use | None], under: str) -> Use | None:
        return use() if under == name else self._use(under)

    def _rows(self, code: Fingerprint) -> Iterator[tuple[str, str, str, Any, Callable[[], Use | None]]]:
        for mapping, name, value in code.globals:
            yield "global", _state.module_name(mapping), name, value, functools.partial(self._use, name)
        for kind, name, value in code.classes_read:
            yield "class", _state.name_of(kind), name, value, functools.partial(self._use, name)
        for function, body in code.followed:
            for name, cell in zip(body.co_freevars, function.__closure__ or (), strict=False):
                use = functools.partial(self._of_variable, function, name)
                yield "closure", _state.name_of(function), name, _state.cell_contents(cell), use
            names = body.co_varnames[: body.co_argcount]
            defaults = [*zip(reversed(names), reversed(function.__defaults__ or ()), strict=False)]
            for name, value in (*defaults, *(function.__kwdefaults__ or {}).items()):
                use = functools.partial(self._of_variable, function, name)
                yield "default", _state.name_of(function), name, value, use

    def _of_variable(self, function: Any, name: str) -> Use | None:
        return _iteration.of_name(name, self._pieces(function), _iteration.CELLS | _iteration.LOCALS, self._bodies)

    def _of_further(self, body: CodeType, name: str) -> Use | None:
        """What is made of what a function gives back, or of what an attribute is given."""
        if name.isidentifier():
            use = self._use(name)
            by_another_name = use is None and name == body.co_name and body is not self._bodies[0].code
            return Use.HASHES if by_another_name else use
        names = self._lambdas.get(body, ())  # as the factory of a default, of a dataclass
        loads = _iteration.NAMES | _iteration.CELLS
        uses = [_iteration.of_name(each, self._bodies, loads) or Use.NONE for each in names]
        return max(uses, default=Use.HASHES)

    @_fork_safe.cached_property
    def _lambdas(self) -> dict[CodeType, set[str]]:
        """The names of globals, attributes of classes and variables that hold functions, by their code."""
        found: dict[CodeType, set[str]] = {}
        for row in (row for code in self._codes for row in self._rows(code)):
            if hasattr(row[3], "__code__"):
                found.setdefault(row[3].__code__, set()).add(row[2])
        return found

    def _sets(self, name: str, held: Any) -> Found:
        return [(under, each) for under, each in _unordered.sets_in(held, name, self._leaves) if each]


def _most(found: Found, use: Callable[[str], Use | None]) -> Use:
    most = Use.NONE
    for name, held in found:
        each = use(name) or Use.NONE
        most = max(most, Use.NONE if each is Use.ORDER and len(held) == 1 else each)
    return most


def _digest(found: Found, use: Use) -> str:
    data: list[list[Any]] = [[name, [Outline().encode(each) for each in held]] for name, held in found]
    if use is Use.HASHES:
        data += [[name, _unordered.hashes(held)] for name, held in found]
    return _keys.digest(data)


def _pieces(function: Any) -> list[Body]:
    return [Body(piece, function.__globals__) for piece in _roots.codes(function.__code__)]


def _methods(kind: type) -> Iterable[Body]:
    """The code of the methods and properties of a class, the library's bases included."""
    for base in kind.__mro__[:-1]:
        for value in vars(base).values():
            for each in (value, *(getattr(value, name, None) for name in ("fget", "__func__", "func", "__wrapped__"))):
                if hasattr(each, "__code__") and hasattr(each, "__globals__"):
                    yield from _pieces(each)
