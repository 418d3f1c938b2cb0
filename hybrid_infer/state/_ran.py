"""The code that a trace has run, which is all that counts of a large program.

Code counts by the names that it mentions, whatever stands before the dot. In a program that is run from its sources a
method may so reach thousands of functions, of which it runs a hundred: to walk through the others takes seconds in each
process, to look at each call whether they are what they were takes longer than the method, and among them are some that
keep a method off the disk. So, where there are more than `_walk.MANY` functions, or one that keeps it off the disk, a
static model is kept with the marks of the code that ran while it was traced (`Ran`), and in the eager call that it is
compared with (`_ran_eagerly`). Functions of other code count by their names, parameters and defaults, as values do, and
are not followed: the same code finds the same values, takes the same way, and runs none of them. Where it may look into
them otherwise, they count by all that they say.

What had run before the trace, and is not run again, leaves its values behind, which count where they are read. Only a
cache (``functools.lru_cache``) hides them: the code behind one that gave an answer counts with all that it mentions.
"""

from __future__ import annotations

import _thread
import sys
from _queue import SimpleQueue
from collections.abc import Collection, Iterable, Sequence, Set
from types import CodeType, FunctionType
from typing import Any, NamedTuple

from hybrid_infer.fingerprint import _code
from hybrid_infer.fingerprint._saying import Streams
from hybrid_infer.objects import _origin
from hybrid_infer.state import _roots

_TUPLES = "namedtuple_"  # with which the modules begin that ``collections.namedtuple`` makes its constructors for
#: By which work gets to other threads, where it is not seen to run.
_THREADS = frozenset({"threading", "queue", "concurrent", "multiprocessing"})
_HANDING_ON = frozenset({"start", "submit", "put", "notify", "notify_all"})
_STARTS = ("start_new_thread", "start_new", "start_joinable_thread")
_STARTING = frozenset(id(getattr(_thread, name)) for name in _STARTS if hasattr(_thread, name))


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


class Trail:
    """The code that runs in a trace, as far as that is seen; ``lost`` says why it was not, else it is empty.

    `caches`: what may answer without its code being run. `known`: modules whose import is no news, since it fails.
    """

    def __init__(self, caches: Iterable[Any], known: Collection[str] = ()) -> None:
        self.lost = ""
        self.missing: list[str] = []  # modules that are to be imported before another trace
        self._known = known
        self.answered: list[Any] = []  # of the caches
        self._codes: dict[int, tuple[CodeType, str]] = {}
        self._caches = [(cache, cache.cache_info()) for cache in caches if not _origin.of_object(cache)]
        self._made: set[str] = set()  # files of code that was made of the program's
        self._streams = Streams()

    def note(self, frame: Any) -> None:
        """Code has begun to run. What only says something is left out."""
        code = frame.f_code
        if id(code) in self._codes or self._streams.says(frame):
            return
        module = frame.f_globals.get("__name__", "")
        self._codes[id(code)] = code, module
        if code.co_name in _HANDING_ON and module.partition(".")[0] in _THREADS:
            self.lost = f"{module}.{code.co_name} hands work to another thread"

    def called(self, frame: Any, function: Any) -> None:
        """A frame calls a function in C.

        No generator here, nor in what else observes calls: torch's compiler may come upon our code, and fails at those.
        """
        if id(function) in _STARTING or type(getattr(function, "__self__", None)) is SimpleQueue:
            if not self._streams.says(frame):
                self.lost = "it hands work to another thread"
        elif function is sys.setprofile and frame.f_globals.get("__name__") != "hybrid_infer._profiler":
            self.lost = "it sets a profile function"

    def imports(self, module: str) -> bool:
        """A module is imported that was not there. Is it to be imported before a trace?"""
        if module in self._known:
            return False
        self.missing.append(module)
        return True

    def rewritten(self, function: FunctionType, made: CodeType) -> None:
        """A function runs as other code, made of its own."""
        self._codes[id(function.__code__)] = function.__code__, function.__module__ or ""
        self._made.add(made.co_filename)

    def look_at_caches(self) -> None:
        """To be called when the code has run, before any cache is emptied for that."""
        for cache, before in self._caches:
            now = cache.cache_info()
            if now.hits != before.hits or now.misses < before.misses:  # or it was emptied since
                self.answered.append(cache)

    def program(self) -> list[tuple[CodeType, str]]:
        """Of the program, code and the names of its modules; of rewritten code, what it was made of."""
        found = ((code, module) for code, module in self._codes.values() if code.co_filename not in self._made)
        return [
            (code, module)
            for code, module in found
            if _origin.of_file(code.co_filename, module) == _origin.USER
            and not (module.startswith(_TUPLES) and code.co_filename.startswith("<"))
        ]

    def marks(self, subject: Any, known: Set[str] = frozenset()) -> frozenset[str]:
        """The marks of what has run of the program, of what libraries have put around it, and of what is behind caches.

        Of that, nothing if some of it is `known`: it has run for a static model.
        """
        wrappers = frozenset().union(*(code.wrappers for code in subject.codes))
        found = {_code.mark(code) for code, _ in self.program()}
        found |= wrappers & {_code.mark(code) for code, _ in self._codes.values() if code.co_freevars}
        for cache in self.answered:
            behind = {_code.mark(code) for _, code, *_ in subject.attributes.code(cache).functions}
            found |= behind if known.isdisjoint(behind) else set()
        return frozenset(found)

    def hidden(self, subject: Any) -> list[str]:
        """What counts for a subject may not be all: why, in words."""
        found = [self.lost] if self.lost else []
        followed = [body for code in subject.codes for _, body in code.followed]
        known = {_code.mark(piece) for body in followed for piece in _roots.codes(body)}
        for code, module in self.program():
            if _code.mark(code) not in known:
                found.append(f"no name leads to {module}.{code.co_name}, which it runs")
        if any(function.__name__ == "__subclasshook__" for code in subject.codes for function, *_ in code.functions):
            found.append("an abstract class may have been asked before what its __subclasshook__ says")
        return found
