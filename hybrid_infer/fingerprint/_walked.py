"""The fingerprint of an instance's code, taken once for as long as nothing that it was made of has changed.

A walk through the code of a large program takes seconds; that it is what it was is told in milliseconds, by the check
that each call makes.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

from hybrid_infer.fingerprint import _fingerprint, _walk
from hybrid_infer.fingerprint._fingerprint import Fingerprint
from hybrid_infer.fingerprint._framework_code import Named

Check = Callable[[], bool]
#: (what was found, names of the framework, functions that it set out from) -> a check that all of it is what it was
Watch = Callable[[Fingerprint, Sequence[Named], Sequence[Any]], Check]

#: Fingerprints: with the framework's functions that were replaced and without, for other arguments, of what has run.
_KEPT = 32


class Known:
    """What a walk has found.

    `roots`: what it set out from, `functions` among them; `answers`: which ids it was told to leave out.
    """

    def __init__(
        self, roots: Sequence[Any], functions: Sequence[Any], among: Collection[str] | None, answers: dict[int, bool],
        code: Fingerprint, watch: Watch, layer_type: type,
    ) -> None:  # fmt: skip
        self.code, self._among, self._layer_type = code, among, layer_type
        self._kinds = self._layers()
        self._roots, self._functions, self._answers, self._watch = roots, functions, answers, watch
        self._checked: tuple[list[Named], Check] | None = None

    def unchanged(self, named: Sequence[Named]) -> Check:
        """A check for every call that the code, and what it names of the framework, is what it was.

        To be asked for right after the walk.
        """
        if self._checked is None or self._checked[0] != [*named]:
            self._checked = [*named], self._watch(self.code, named, self._functions)
        return self._checked[1]

    def comes_of(self, roots: Sequence[Any], among: Collection[str] | None, inside: Collection[int]) -> bool:
        """Would a walk from these roots find it again?

        The check keeps what the walk has met, so that ids which it was told of are nobody else's now.
        """
        if self._checked is None or len(roots) != len(self._roots) or among != self._among:
            return False
        same = all(a is b for a, b in zip(roots, self._roots, strict=True)) and self._checked[1]()
        return same and self._layers() == self._kinds and all((i in inside) == a for i, a in self._answers.items())

    def _layers(self) -> list[type]:
        """The classes of layers that the code leads to, and of those in them, which no check looks at."""

        def is_layer(value: Any) -> bool:
            return isinstance(value, self._layer_type)

        found = [each.object for each in self.code.externals if is_layer(each.object)]
        return [type(layer) for each in found for layer in _walk.layers_of(each, is_layer)]


class Walked:
    """The last fingerprints of one instance's method."""

    def __init__(self) -> None:
        self._known: list[Known] = []

    def of(
        self, frontend: Any, functions: Sequence[Any], classes: Sequence[type], owner: type | None, held: Sequence[Any],
        attributes: Mapping[str, Mapping[str, Sequence[Any]]], inside: Collection[int],
        mentions: Callable[[Any], frozenset[str]], watch: Watch, among: Collection[str] | None,
        called: Sequence[type] = (),
    ) -> Known:  # fmt: skip
        """See `_fingerprint.fingerprint`; `inside` are ids of objects that it leaves out.

        `mentions` tells the names that a function mentions, `watch` makes a check of what was found.
        """
        roots = [frontend, owner, len(functions), *functions, len(classes), *classes, len(held), *held]
        roots += [len(called), *called]
        for names in attributes.values():
            roots += [part for name, each in names.items() for part in (name, len(each), *each)]
        for known in list(self._known):
            if known.comes_of(roots, among, inside):
                return known
        answers: dict[int, bool] = {}
        code, loaded = None, 0
        # The module that code imports when it runs may enter itself in a table that was met before.
        while code is None or (among is not None and len(sys.modules) > loaded):
            loaded = len(sys.modules)
            answers.clear()
            code = _fingerprint.fingerprint(
                functions,
                classes,
                is_tensor=lambda value: isinstance(value, frontend.tensor_type),
                is_layer=lambda value: isinstance(value, frontend.layer_type),
                skip=lambda value: answers.setdefault(id(value), id(value) in inside),
                owner=owner,
                held=held,
                attributes=attributes,
                mentions=mentions,
                among=among,
                called=called,
            )
        known = Known(roots, functions, among, answers, code, watch, frontend.layer_type)
        self._known = [known, *self._known][:_KEPT]
        return known
