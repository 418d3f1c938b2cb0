"""Integer expressions over the sizes of a call: polynomials with integer coefficients, in one form for equal values.

A constant is a plain ``int``; everything else is a `Size`. Both mix in arithmetic, so that shape inference reads the
same for known and for symbolic dimensions.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Union

#: ``("dim", input, axis)``: the size of an input along an axis. ``("int", input)``: the value of an integer input.
#: ``("data", value, axis)``: known only once that value is computed. ``("//", a, b)``, ``("%", a, b)``,
#: ``("max", a, b)``, ``("min", a, b)``; ``("broadcast", a, b)``: b where a is 1, else a.
Atom = tuple[Any, ...]
Dim = Union[int, "Size"]

_BINARY = ("//", "%", "max", "min", "broadcast")


class Size:
    """A polynomial over atoms: sorted terms ``(monomial, coefficient)``, a monomial being a sorted tuple of atoms."""

    __slots__ = ("_hash", "terms", "weight")

    def __init__(self, terms: tuple[tuple[tuple[Atom, ...], int], ...]) -> None:
        self.terms = terms
        self._hash = hash(terms)
        #: How many symbols are written in it, those inside others included.
        self.weight: int = sum(_weight(each) for monomial, _ in terms for each in monomial)

    def __hash__(self) -> int:
        return self._hash

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Size) and self.terms == other.terms

    def __add__(self, other: Dim) -> Dim:
        return _make((*self.terms, *_terms(other)))

    __radd__ = __add__

    def __neg__(self) -> Dim:
        return self * -1

    def __sub__(self, other: Dim) -> Dim:
        return self + other * -1

    def __rsub__(self, other: Dim) -> Dim:
        return self * -1 + other

    def __mul__(self, other: Dim) -> Dim:
        return _make(
            (tuple(sorted((*a, *b), key=repr)), m * n) for a, m in self.terms for b, n in _terms(other)
        )

    __rmul__ = __mul__

    def __floordiv__(self, other: Dim) -> Dim:
        exact = _quotient(self, other)
        return atom("//", self, other) if exact is None else exact

    def __rfloordiv__(self, other: int) -> Dim:
        return 0 if other == 0 else atom("//", other, self)

    def __mod__(self, other: Dim) -> Dim:
        return atom("%", self, other) if _quotient(self, other) is None else 0

    def __rmod__(self, other: int) -> Dim:
        return 0 if other == 0 else atom("%", other, self)

    def __repr__(self) -> str:
        return "Size(" + " + ".join("*".join([str(n), *map(_text, m)]) for m, n in self.terms) + ")"


def _weight(one: Atom) -> int:
    return 1 + sum(part.weight for part in one[1:] if isinstance(part, Size))


def _text(one: Atom) -> str:
    return f"{one[0]}({', '.join(map(str, one[1:]))})"


def _terms(value: Dim) -> tuple[tuple[tuple[Atom, ...], int], ...]:
    return value.terms if isinstance(value, Size) else (((), int(value)),)


def _make(terms: Iterable[tuple[tuple[Atom, ...], int]]) -> Dim:
    total: dict[tuple[Atom, ...], int] = {}
    for monomial, count in terms:
        total[monomial] = total.get(monomial, 0) + count
    kept = tuple(sorted(((m, n) for m, n in total.items() if n), key=repr))
    if not kept:
        return 0
    if len(kept) == 1 and not kept[0][0]:
        return kept[0][1]
    return Size(kept)


def _quotient(top: Dim, bottom: Dim) -> Dim | None:
    """The exact quotient of two polynomials, or None."""
    if bottom == 0:
        return None
    if isinstance(bottom, int):
        if any(n % bottom for _, n in _terms(top)):
            return None
        return _make((m, n // bottom) for m, n in _terms(top))
    lead, count = max(bottom.terms, key=_rank)
    found: Dim = 0
    for _ in range(64):
        if top == 0:
            return found
        monomial, n = max(_terms(top), key=_rank)
        rest = list(monomial)
        for each in lead:
            if each not in rest:
                return None
            rest.remove(each)
        if n % count:
            return None
        part = _make([(tuple(rest), n // count)])
        found = found + part
        top = top - part * bottom
    return None


def _rank(term: tuple[tuple[Atom, ...], int]) -> tuple[int, str]:
    """An order of monomials that products keep: by degree, then by name."""
    return len(term[0]), repr(term[0])


def atom(kind: str, *parts: Any) -> Size:
    """The polynomial that is one atom."""
    return Size(((((kind, *parts),), 1),))


def largest(a: Dim, b: Dim) -> Dim:
    if never_negative(a - b):
        return a
    return b if never_negative(b - a) else atom("max", a, b)


def smallest(a: Dim, b: Dim) -> Dim:
    if never_negative(b - a):
        return a
    return b if never_negative(a - b) else atom("min", a, b)


def never_negative(size: Dim) -> bool:
    """Is `size` surely not below zero? Dimensions are not."""
    if isinstance(size, int):
        return size >= 0
    return all(count >= 0 and all(map(_never_negative, monomial)) for monomial, count in size.terms)


def _never_negative(one: Atom) -> bool:
    if one[0] in ("dim", "data"):
        return True
    if one[0] == "int":
        return False
    if one[0] == "%" and isinstance(one[2], int):
        return one[2] > 0
    signs = [never_negative(part) for part in one[1:]]
    return any(signs) if one[0] == "max" else all(signs)


def edge(at: Dim, size: Dim) -> Dim | None:
    """Where a slice forwards begins or ends on an axis of that size; None where that is not known."""
    if isinstance(at, int) and at < 0:
        return largest(size + at, 0)
    if isinstance(at, int) and at >= 2**31 - 1:
        return size
    if not never_negative(at):
        return None
    return 0 if at == 0 else smallest(at, size)


def first_of(at: Dim, size: Dim, stride: int) -> Dim | None:
    """Where a slice by `stride` begins on an axis of that size; None where that is not known."""
    if stride > 0:
        return edge(at, size)
    return size - 1 if isinstance(at, int) and (at == -1 or at >= 2**31 - 1) else None


def divided(a: Dim, b: Dim) -> Dim | None:
    """a / b, where that is a whole number whatever the symbols are."""
    if b == 0 or (isinstance(a, int) and isinstance(b, Size)):
        return None
    rest = a // b
    return rest if rest * b == a else None


def product(sizes: Iterable[Dim]) -> Dim:
    total: Dim = 1
    for each in sizes:
        total = total * each
    return total


def strides(shape: Sequence[Dim]) -> list[Dim]:
    """How many elements lie between neighbours along each axis, where an array of that shape lies as it is."""
    return [product(shape[axis + 1 :]) for axis in range(len(shape))]


def broadcast(a: Dim, b: Dim) -> Dim:
    """The size of an axis along which two operands meet. Raises ValueError where they cannot."""
    if a == b or b == 1:
        return a
    if a == 1:
        return b
    if isinstance(a, int) and isinstance(b, int):
        raise ValueError(f"sizes {a} and {b} do not broadcast")
    for whole, part in ((a, b), (b, a)):
        if any(part == atom("min", *pair) for n in _bounds(part) for pair in ((whole, n), (n, whole))):
            return whole  # they meet where the bound does not bind; as does one element
    if isinstance(a, int):
        return a  # the other is this or 1
    return b if isinstance(b, int) else atom("broadcast", a, b)


def _bounds(size: Dim) -> list[int]:
    """The positive numbers that `size` is at most, where it is the smaller of one and something else."""
    if isinstance(size, int) or len(size.terms) != 1 or size.terms[0][1] != 1 or len(size.terms[0][0]) != 1:
        return []
    one = size.terms[0][0][0]
    return [part for part in one[1:] if isinstance(part, int) and part > 0] if one[0] == "min" else []


def evaluate(size: Dim, symbols: Mapping[Atom, int]) -> int:
    """The number that `size` is for these values of its symbols. Raises KeyError for an atom that has no value."""
    if isinstance(size, int):
        return size
    total = 0
    for monomial, count in size.terms:
        for each in monomial:
            count *= _value(each, symbols)
        total += count
    return total


def _value(one: Atom, symbols: Mapping[Atom, int]) -> int:
    if one[0] not in _BINARY:
        return symbols[one]
    a, b = evaluate(one[1], symbols), evaluate(one[2], symbols)
    if one[0] == "//":
        return a // b
    if one[0] == "%":
        return a % b
    if one[0] == "broadcast":
        return b if a == 1 else a
    return max(a, b) if one[0] == "max" else min(a, b)


def atoms(size: Dim) -> set[Atom]:
    """Every symbol that `size` depends on."""
    found: set[Atom] = set()
    for monomial, _ in _terms(size):
        for each in monomial:
            if each[0] in _BINARY:
                found |= atoms(each[1]) | atoms(each[2])
            else:
                found.add(each)
    return found


def known(size: Dim) -> bool:
    """Does `size` follow from the inputs, so that it is known before anything is computed?"""
    return all(one[0] != "data" for one in atoms(size))


def to_json(size: Dim) -> Any:
    if isinstance(size, int):
        return size
    return ["+", *(["*", n, *([a[0], *map(_part, a[1:])] for a in m)] for m, n in size.terms)]


def _part(value: Any) -> Any:
    return to_json(value) if isinstance(value, Size) else value


def from_json(data: Any) -> Dim:
    """The size that `to_json` wrote. Raises ValueError for anything else."""
    if isinstance(data, int):
        return data
    kind = data[0]
    if kind == "+":
        total: Dim = 0
        for each in data[1:]:
            total = total + from_json(each)
        return total
    if kind == "*":
        return product(from_json(each) for each in data[1:])
    if kind in _BINARY:
        return atom(kind, from_json(data[1]), from_json(data[2]))
    if kind in ("dim", "int", "data"):
        return atom(kind, *data[1:])
    raise ValueError(f"not a size: {data!r}")
