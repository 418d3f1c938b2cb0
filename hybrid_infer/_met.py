"""The calls that a method has been given: structures, sizes and integers, for a static model that is to be saved."""

from __future__ import annotations

import json

from hybrid_infer._version import Call

_GROUPS = 32  # structures that are remembered of one instance
_CALLS = 8  # calls of each that differ in sizes or integers


Style = tuple[int, frozenset[str]]


class Met:
    """Calls by structure, the latest last; each group holds calls that differ in sizes and integers alone.

    Threads may race: the loser's call is forgotten.
    """

    def __init__(self) -> None:
        self._groups: dict[str, list[Call]] = {}
        self.styles: dict[str, Style] = {}

    def note(self, call: Call, style: Style) -> None:
        """Remember a call, unless an equal one is remembered. Of more than a few, the first and the latest stay.

        `style` is how its arguments were passed: see ``Parameters.unbind``.
        """
        kinds = [[t.dtype, len(t.shape)] for t in call.tensors]
        key = json.dumps([call.tree, kinds, len(call.ints)])
        group = self._groups.pop(key, [])
        if not any((call.tensors, call.ints) == (each.tensors, each.ints) for each in group):
            group = [*group[:1], *group[-(_CALLS - 2) :], call] if len(group) >= _CALLS else [*group, call]
        self._groups[key] = group
        self.styles[key] = style
        for old in list(self._groups)[:-_GROUPS]:
            self._groups.pop(old, None)
            self.styles.pop(old, None)

    def groups(self) -> list[tuple[list[Call], Style]]:
        return [(list(group), self.styles.get(key, (0, frozenset()))) for key, group in list(self._groups.items())]
