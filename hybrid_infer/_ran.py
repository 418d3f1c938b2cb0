"""The code that a trace has run, which is all that counts of a large program.

Code counts by the names that it mentions, whatever stands before the dot. In a program that is run from its sources a
method may so reach thousands of functions, of which it runs a hundred: to walk through the others takes seconds in each
process, to look at each call whether they are what they were takes longer than the method, and among them are some that
keep a method off the disk. So, where there are more than `_walk.MANY` functions, or one that keeps it off the disk, a
static model is kept with the marks of the code that ran while it was traced (`Ran`). Functions of other code count by
their names and parameters, as values do, and are not followed: the same code finds the same values, takes the same way,
and runs none of them.

What had run before the trace, and is not run again, leaves its values behind, which count where they are read. Only a
cache (``functools.lru_cache``) hides them: the code behind one that gave an answer counts with all that it mentions.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from types import CodeType
from typing import Any, NamedTuple

from hybrid_infer import _code, _origin, _roots

_TUPLES = "namedtuple_"  # with which the modules begin that ``collections.namedtuple`` makes its constructors for


class Ran(NamedTuple):
    """``codes``: marks of code (`_code.mark`); ``key``: of the method, where no other functions are followed."""

    codes: frozenset[str]
    key: str

    def to_meta(self) -> list[Any]:
        """As JSON data."""
        return [sorted(self.codes), self.key]

    @staticmethod
    def from_meta(meta: Sequence[Any]) -> Ran:
        codes, key = meta
        return Ran(frozenset(map(str, codes)), str(key))


def marks(ran: Iterable[tuple[CodeType, str]], answered: Iterable[Any], subject: Any) -> frozenset[str]:
    """The marks of what has run of the program, given code with the names of its modules, and of what is behind caches.

    Of libraries, what they have put around functions of the program.
    """
    wrappers = frozenset().union(*(code.wrappers for code in subject.codes))
    found = {_code.mark(code) for code, module in ran if _of_program(code, module)}
    found |= wrappers & {_code.mark(code) for code, module in ran if code.co_freevars}
    for cache in answered:
        if not _origin.of_object(cache):
            found |= {_code.mark(code) for _, code, *_ in subject.attributes.code(cache).functions}
    return frozenset(found)


def unseen(ran: Iterable[tuple[CodeType, str]], subject: Any) -> list[str]:
    """What has run of the program, and is none of what counts for a subject: by which way, no name tells."""
    bodies = (body for code in subject.codes for _, body in code.followed)
    known = {_code.mark(piece) for body in bodies for piece in _roots.codes(body)}
    mine = [(code, module) for code, module in ran if _of_program(code, module)]
    return [f"{module}.{code.co_name}" for code, module in mine if _code.mark(code) not in known]


def _of_program(code: CodeType, module: str) -> bool:
    if module.startswith(_TUPLES) and code.co_filename.startswith("<"):
        return False
    return _origin.of_file(code.co_filename, module) == _origin.USER
