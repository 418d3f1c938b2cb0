"""The user code and the values that a method reaches, as labelled digests.

What counts is decided by reachability, not by files: code objects are followed through the globals, closures,
defaults and classes that they use, and through every attribute name that they mention. An attribute name that occurs
anywhere in the code reached so far is looked up in every user class and user module reached so far, since what
stands before the dot is not known. So too much may count, never too little. Library code counts by its version.
"""

from __future__ import annotations

import contextvars
import logging
import types
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from hybrid_infer import _keys
from hybrid_infer._own_thread import itself
from hybrid_infer.fingerprint._objects import External
from hybrid_infer.fingerprint._walk import Test, Walk
from hybrid_infer.objects._state import ABSENT, cell_contents, name_of

__all__ = ["ABSENT", "External", "Fingerprint", "fingerprint"]


@dataclass(frozen=True)
class Fingerprint:
    """What `fingerprint` found.

    ``ingredients``: label -> digest, or version for the labels that start with "library"; the same in every process.
    ``opaque``: "what: why" of each thing that has no fingerprint: with any, ``digest`` must not name anything on disk.
    ``globals``: (mapping, name, value) of each global name that user code reads, ``ABSENT`` for one that is not there;
    ``builtins``: (mapping, name) of those that it leaves to Python's builtins; ``cells``: (cell, value) of its
    closures; ``classes_read``: (class, name, value) of each class attribute that counted; ``classes`` and ``modules``:
    the user's in which names were looked up; ``loggers``: those whose levels are asked for; ``functions``: (function,
    code, defaults, kwdefaults) of each user function. They are for `rebound`. ``followed``: (function, code) of those
    that were followed.
    ``attributes``: the names of attributes that this code mentions, whether or not anything of that name is there.
    ``sentinels``: what code reaches that is nothing but itself (``object()``), in the order in which it was met.
    ``caches``: what ``functools.lru_cache`` has made. ``context_variables``: are there any? ``wrappers``: marks of code
    of libraries, in functions that hold others.
    """

    digest: str
    ingredients: Mapping[str, str]
    opaque: tuple[str, ...]
    externals: tuple[External, ...]
    globals: tuple[tuple[Mapping[str, Any], str, Any], ...]
    builtins: tuple[tuple[Mapping[str, Any], str], ...]
    cells: tuple[tuple[types.CellType, Any], ...]
    classes_read: tuple[tuple[type, str, Any], ...]
    classes: tuple[type, ...]
    modules: tuple[types.ModuleType, ...]
    loggers: tuple[logging.Logger, ...]
    functions: tuple[tuple[types.FunctionType, types.CodeType, Any, Any], ...]
    attributes: frozenset[str]
    sentinels: tuple[object, ...]
    followed: tuple[tuple[types.FunctionType, types.CodeType], ...]
    caches: tuple[Any, ...]
    context_variables: bool
    wrappers: frozenset[str]

    def rebound(self) -> str:
        """The first name that no longer holds the object that was fingerprinted; empty if all do.

        Compares by identity. A list or object that was changed in place is not seen.
        """
        for mapping, name, value in self.globals:
            if mapping.get(name, ABSENT) is not value:
                return f"global {name}"
        for owner, name, value in self.classes_read:
            if owner.__dict__.get(name, ABSENT) is not value:
                return f"{name_of(owner)}.{name}"
        for function, code, defaults, kwdefaults in self.functions:
            if (
                itself(function.__code__) is not itself(code)
                or function.__defaults__ is not defaults
                or function.__kwdefaults__ is not kwdefaults
            ):
                return f"function {name_of(function)}"
        for cell, value in self.cells:
            if cell_contents(cell) is not value:
                return "a closure cell"
        return ""


def fingerprint(
    functions: Iterable[Any],
    classes: Iterable[type],
    *,
    is_tensor: Test,
    is_layer: Test,
    skip: Test = lambda value: False,
    owner: type | None = None,
    held: Iterable[types.ModuleType | logging.Logger | contextvars.ContextVar[Any]] = (),
    attributes: Mapping[str, Mapping[str, Sequence[Any]]] | None = None,
    mentions: Callable[[Any], frozenset[str]] = lambda function: frozenset(),
    among: Collection[str] | None = None,
    called: Iterable[type] = (),
) -> Fingerprint:
    """Fingerprint `functions` (any callables) and all that they reach, given the `classes` of the layer tree.

    ``forward`` and the implicit methods of every class count from the start, its other attributes where code that is
    reached mentions their name. ``owner`` is the class of the layer whose method this is, if no sublayer has that
    class: its ``forward`` then counts only where something reaches it. ``held`` are modules, loggers and context
    variables in the state of the layer, ``attributes`` functions that objects of a class keep under a name: where code
    mentions that, the names that they mention (`mentions`) count. Objects for which `skip` is true are left out.
    `called` are those of the `classes` of which code may make instances.
    `among` are marks of code (see `_ran`): a function of other code counts by its parameters, and is not followed.
    Values are read, and no code of the user is run, except for imports that a reached function would make itself.
    """
    walk = Walk(is_tensor, is_layer, skip, among)
    walk.mentioned_by = mentions
    for kind in classes:
        walk.layer_class(kind, entry=kind is not owner)
    for kind in called:
        walk.made(kind)
    walk.owner = owner
    for function in functions:
        walk.root(function)
    for value in held:
        name = value.__name__ if isinstance(value, types.ModuleType) else value.name
        walk.ingredient(walk.unique(f"held {name}"), value, ("attribute", "the layer", ""))
    for label, functions_of in (attributes or {}).items():
        space = walk.space(functions_of, f"objects of {label}", functions_of)
        space.functions_of_objects = True
        space.aliases.add("")
    walk.finish()
    ingredients = dict(sorted(walk.ingredients.items()))
    return Fingerprint(
        _keys.digest(tuple(ingredients.items())),
        ingredients,
        tuple(dict.fromkeys(walk.opaque)),
        tuple(walk.externals),
        tuple(walk.globals.values()),
        tuple(walk.builtins.values()),
        tuple(walk.cells.values()),
        tuple(walk.classes_read.values()),
        tuple(s.owner for s in walk.spaces.values() if isinstance(s.owner, type) and not s.library),
        tuple(s.owner for s in walk.spaces.values() if isinstance(s.owner, types.ModuleType) and not s.library),
        tuple(walk.loggers.values()),
        tuple((f, f.__code__, f.__defaults__, f.__kwdefaults__) for f in walk.functions),
        frozenset(walk.mentions.used),
        tuple(walk.sentinels),
        tuple((f, f.__code__) for f in walk.functions if walk.follows(f.__code__)),
        tuple(walk.caches),
        walk.context_variables,
        frozenset(walk.wrappers),
    )
