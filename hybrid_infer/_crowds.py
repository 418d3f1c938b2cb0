"""Calls that differ in values which are constants of a graph, past ``max_versions`` or where several captures failed:
none is looked into any further.

A number or text that is another at each call would else be looked up in the store each time, or traced in vain, for
many times what the eager method takes; and so would each length of a list, as of the images that a detector is given.
"""

from __future__ import annotations

import contextlib
from collections import Counter, OrderedDict
from collections.abc import Hashable
from typing import Any

from hybrid_infer._family import Family
from hybrid_infer._pauses import minutes
from hybrid_infer._route import Eager
from hybrid_infer._version import Call, Version

_KEPT = 64  # kinds of calls, the last ones
_RECURRING = 256  # calls of which it is known that they are among them, the last ones
_FAILURES = 3  # captures that failed for calls of a kind, of which none was served
_LIST = ("u", "builtins:list")  # how the node of a list begins in a tree


class Crowds:
    """Of one instance: how kinds of calls are answered that are alike but for their constants."""

    def __init__(self) -> None:
        self._known: OrderedDict[Hashable, tuple[Eager, int]] = OrderedDict()
        self._failed: Counter[Hashable] = Counter()
        #: By what the memo looks for, as steps of a schedule come back; as long as the versions in sight are `_among`.
        self._recurring: OrderedDict[Hashable, Eager] = OrderedDict()
        self._among: list[Any] = []

    def add(self, call: Call, route: Eager) -> None:
        """Have calls like this one answered by `route`: for a minute, and ever longer, then one is looked up again.

        Other processes may have put there by then what it needs.
        """
        self._add(_kind(call), route)

    def _add(self, kind: Hashable, route: Eager) -> None:
        _, times = self._known.pop(kind, (None, 0))
        wait = minutes(times)
        valid = route.valid
        answer = Eager(route.reason, lambda: wait() and valid(), remedy=route.remedy, kind=route.kind)
        self._known[kind] = answer, times + 1
        if len(self._known) > _KEPT:
            self._known.popitem(last=False)

    def failed(self, call: Call, route: Eager, family: Family) -> None:
        """Note that a capture failed, for which calls like this one are answered by `route` from some such on."""
        kind, lengths = _kind(call), _of_any_length(call)
        versions = [held.version for held in list(family.held)]
        if any(version.graph and _kind(version) == kind for version in versions):
            return
        alike = [version for version in versions if _of_any_length(version) == lengths and not version.degenerate]
        trees = {without_values(version.tree) for version in alike}
        if len(trees) >= _FAILURES and not any(version.graph for version in alike):
            self._add(lengths, route)
        if len(self._failed) >= _KEPT:
            self._failed.clear()
        self._failed[kind] += 1
        if self._failed[kind] >= _FAILURES:
            self.add(call, route)

    def again(self, key: Hashable, family: Family | None) -> Eager | None:
        """The route that ``of`` gave for such a call before."""
        route = self._recurring.get(key)
        if route is None:
            return None
        if family is not None and family.held == self._among and route.valid():
            return route
        self._recurring.clear()
        return None

    def of(self, call: Call, family: Family | None, key: Hashable) -> Eager | None:
        """The route of a call for which no version in sight was made; None where it has to be looked up.

        `key`: what the memo looks for in it.
        """
        if not self._known:
            return None
        found = self._known.get(_kind(call)) or self._known.get(_of_any_length(call))
        if found is None or family is None or any(held.version.fits(call) for held in list(family.held)):
            return None
        route, _ = found
        if not route.valid():
            return None
        among = list(family.held)
        if among != self._among:
            self._recurring.clear()
            self._among = among
        self._recurring[key] = route
        if len(self._recurring) > _RECURRING:
            with contextlib.suppress(KeyError):  # another thread emptied it
                self._recurring.popitem(last=False)
        return route


def _kind(call: Call | Version) -> Hashable:
    return without_values(call.tree), call.tensors, call.ints, call.ambient


def _of_any_length(call: Call | Version) -> Hashable:
    """The same without how often equal items follow each other in lists, and without sizes.

    Not in tuples: of ``*args``, and of the arguments themselves, one more may be what the others did not do without.
    """
    tensors = frozenset((spec.dtype, len(spec.shape), spec.device) for spec in call.tensors)
    return _folded(without_values(call.tree)), tensors, call.ambient


def _folded(node: Any) -> Any:
    if not isinstance(node, tuple):
        return node
    parts = [_folded(each) for each in node]
    if node[:2] == _LIST:
        *head, items = parts
        return *head, tuple(item for before, item in zip([None, *items], items, strict=False) if item != before)
    return tuple(parts)


def without_values(node: Any) -> Any:
    """A tree without the values of its constants."""
    if not isinstance(node, list):
        return node
    return ("c", node[1]) if node and node[0] == "c" else tuple(map(without_values, node))
