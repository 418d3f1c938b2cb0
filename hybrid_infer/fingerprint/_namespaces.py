"""Names under which code may reach something: of classes, modules and functions, by what code mentions."""

from __future__ import annotations

import types
from collections.abc import Mapping
from typing import Any

from hybrid_infer.objects import _origin

#: Names that describe a class or belong to its machinery.
_NEVER = frozenset(
    {
        "__doc__",
        "__module__",
        "__dict__",
        "__weakref__",
        "__qualname__",
        "__name__",
        "__firstlineno__",
        "__static_attributes__",
        "__slots__",
        "__abstractmethods__",
        "_abc_impl",
        "__orig_bases__",
        "__parameters__",
        "__dataclass_params__",
        "__classcell__",
        "__conditional_annotations__",
        "__type_params__",
        "__annotations_cache__",
        "__annotate__",
        "__annotate_func__",
        "__annotations__",
        "__del__",
        "__dir__",
        "__sizeof__",
        "__set_name__",
        "__slotnames__",
        # Of models of pydantic, whose validator says the same in a form that each process shares (see `_schemas`), and
        # what assignments fill, or was around when a class was made.
        "__pydantic_core_schema__",
        "__pydantic_serializer__",
        "__pydantic_setattr_handlers__",
        "__pydantic_parent_namespace__",
    }
)
#: Those of them that count where code looks at them.
_SHOWN = frozenset({"__annotations__", "__doc__", "__orig_bases__", "__parameters__", "__slots__"})
#: Run when an instance is made, which is over for the layers of a tree.
_CONSTRUCTORS = frozenset({"__init__", "__new__", "__post_init__", "__init_subclass__"})
_COPIERS = frozenset(
    {
        "__reduce__",
        "__reduce_ex__",
        "__getstate__",
        "__setstate__",
        "__getnewargs__",
        "__getnewargs_ex__",
        "__copy__",
        "__deepcopy__",
        "__replace__",
    }
)
_COPYING = frozenset({"copy", "deepcopy", "replace", "dumps"})
_FORMATTERS = frozenset({"__repr__", "__str__", "__format__"})
_ACCESSORS = frozenset({"__getattr__", "__getattribute__"})
ENTRIES = frozenset({"forward", "__call__", "__wrapped__"})


class Mentions:
    """What the code that was reached so far mentions.

    ``used``: names of attributes; ``mentioned``: of globals; ``bare``: of either, where the value is used for more than
    its attributes. ``formats``: something may be turned into text. ``widened``: names that are computed are looked up
    among all there are; ``on_self``: by class, with what the names begin that its methods compute for attributes of
    their own objects; None: of anything. ``classes``: all that were reached; ``makes_classes``: there may be more, with
    methods of any.
    """

    def __init__(self) -> None:
        self.used: set[str] = set()
        self.mentioned: set[str] = set()
        self.bare: set[str] = set()
        self.formats = False
        self.widened = False
        self.on_self: dict[type | None, set[str]] = {}
        self.classes: set[type] = set()
        self._families: dict[type, set[type]] = {}
        self._known: set[type] = set()  # of the classes, those that have their place in the families
        self.makes_classes = False

    def computed_on(self, kind: type | None) -> tuple[str, ...]:
        """With what such names may begin where an object that has the methods of `kind` has those of that class too.

        None: of what is no class.
        """
        bases = self._family(kind)
        anything = self.makes_classes
        homes = [home for home in self.on_self if anything or home is None or home in bases or self._hands_on(home)]
        return tuple(text for home in homes for text in self.on_self[home])

    def _hands_on(self, home: type) -> bool:
        """May an object with the methods of a class look for names on others, by an accessor of the program's?"""
        bases = self._family(home)
        return any(not _ACCESSORS.isdisjoint(vars(base)) for base in bases if not _origin.of_object(base))

    def _family(self, kind: type | None) -> set[type]:
        """All that the classes derive from that derive from this one."""
        if len(self._known) < len(self.classes):
            for each in self.classes - self._known:
                for base in each.__mro__:
                    self._families.setdefault(base, set()).update(each.__mro__)
            self._known |= self.classes
        return self._families.get(kind, set()) if kind is not None else set()


class Namespace:
    """Attributes that code may reach by name: of a user class, a user module or a function."""

    def __init__(self, mapping: Mapping[str, Any], label: str, owner: Any) -> None:
        self.mapping, self.label, self.owner = mapping, label, owner
        self.extra: set[str] = set()
        self.done: set[str] = set()
        self.aliases: set[str] = set()
        self.computed = False
        self.constructible = False
        self.library = False
        self.functions_of_objects = False  # rather than one attribute each

    def wanted(self, mentions: Mentions) -> list[str]:
        """Names to be looked up that have not been yet."""
        mapping = self.mapping
        is_class = isinstance(self.owner, type)
        if self.library:
            names = set(mapping) if is_class else mapping.keys() & mentions.used
        elif self.computed or (mentions.widened and self._escapes(mentions)):
            names = {name for name in mapping if not dunder(name)} if is_class else data_names(mapping)
            names |= mapping.keys() & mentions.used
        else:
            names = mapping.keys() & mentions.used
        names |= mapping.keys() & self.extra
        if mentions.on_self and (is_class or self._escapes(mentions)):
            begun = mentions.computed_on(self.owner if is_class else None)
            names |= {name for name in mapping if name.startswith(begun) and not dunder(name)}
        if is_class and not self.library:
            implicit = {name for name in mapping if dunder(name)}
            if _COPYING.isdisjoint(mentions.used) and _COPYING.isdisjoint(mentions.mentioned):
                implicit -= _COPIERS
            if not mentions.formats:
                implicit -= _FORMATTERS
            names |= implicit
            if not self.constructible:
                names -= _CONSTRUCTORS
        if not self.library:
            names -= _NEVER - (_SHOWN & mentions.used) if is_class else _NEVER
        return sorted(names - self.done)

    def _escapes(self, mentions: Mentions) -> bool:
        """May an attribute of this be looked up by a computed name, without being known by its own?"""
        return isinstance(self.owner, type) or "" in self.aliases or not self.aliases.isdisjoint(mentions.bare)


def dunder(name: str) -> bool:
    return name.startswith("__") and name.endswith("__")


def data_names(mapping: Mapping[str, Any], *, modules: bool = False) -> set[str]:
    """Names of functions, classes and data: what code may fetch from a module by a computed name."""
    return {n for n, v in list(mapping.items()) if not dunder(n) and (modules or not isinstance(v, types.ModuleType))}
