"""The calls that a method has been given: structures, sizes and integers, for a static model that is to be saved."""

from __future__ import annotations

import json
import threading

from hybrid_infer._version import Call

_GROUPS = 32  # structures that are remembered of one instance
_CALLS = 8  # calls of each that differ in sizes or integers
_THREADS = 64  # whose latest call can be taken back


Style = tuple[int, frozenset[str]]


class Met:
    """Calls by structure, the latest last; each group holds calls that differ in sizes and integers alone.

    Threads may race: the loser's call is forgotten.
    """

    def __init__(self) -> None:
        self._groups: dict[str, list[Call]] = {}
        self.styles: dict[str, Style] = {}
        self.count = 0  # of the calls that were remembered
        self.others = False  # was there one that no saved model takes?
        self._latest: dict[int, tuple[int, str, Call]] = {}  # by thread: which of them, its group, and the call

    def note(self, call: Call, style: Style) -> None:
        """Remember a call, unless an equal one is remembered. Of more than a few, the first and the latest stay.

        `style` is how its arguments were passed: see ``Parameters.unbind``.
        """
        kinds = [[t.dtype, len(t.shape)] for t in call.tensors]
        key = json.dumps([call.tree, kinds, len(call.ints)])
        group = self._groups.pop(key, [])
        if not any((call.tensors, call.ints) == (each.tensors, each.ints) for each in group):
            group = [*group[:1], *group[-(_CALLS - 2) :], call] if len(group) >= _CALLS else [*group, call]
            self.count += 1
            self._latest[threading.get_ident()] = self.count, key, call
            for thread in list(self._latest)[:-_THREADS]:
                self._latest.pop(thread, None)
        self._groups[key] = group
        self.styles[key] = style
        for old in list(self._groups)[:-_GROUPS]:
            self._groups.pop(old, None)
            self.styles.pop(old, None)

    def take_back(self, count: int) -> bool:
        """Forget the call that this thread has noted since `count` was read, which raised; was there one?"""
        number, key, call = self._latest.get(threading.get_ident(), (0, "", None))
        if number <= count:
            return False
        group = [each for each in self._groups.get(key, []) if each is not call]
        if group:
            self._groups[key] = group
        else:
            self._groups.pop(key, None)
            self.styles.pop(key, None)
        return True

    def groups(self) -> list[tuple[list[Call], Style]]:
        return [(list(group), self.styles.get(key, (0, frozenset()))) for key, group in list(self._groups.items())]
