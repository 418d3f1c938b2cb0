"""All code that a method may run, and what is asked of it: the names that it has, and what it may do by them."""

from __future__ import annotations

import dis
import functools
from collections.abc import Callable, Collection, Iterator
from types import BuiltinFunctionType, CodeType, FunctionType, MethodDescriptorType, WrapperDescriptorType
from typing import Any

from hybrid_infer import _fork_safe
from hybrid_infer.fingerprint import _code, _type_calls
from hybrid_infer.fingerprint._fingerprint import Fingerprint
from hybrid_infer.state import _roots

_FUNCTIONS = (FunctionType, BuiltinFunctionType, MethodDescriptorType, WrapperDescriptorType)


class Codes(tuple[Fingerprint, ...]):
    """The method's code first, then that of the functions which objects keep under names that it mentions."""

    @_fork_safe.cached_property
    def names(self) -> frozenset[str]:
        """Every name that the user's code uses, of attributes and of globals."""
        found = (code.attributes for code in self)
        return frozenset().union(*found, *(piece.co_names for _, piece in self.bodies()))

    def bodies(self) -> Iterator[tuple[Any, CodeType]]:
        """Each function of the program that the method may run, and each piece of code in it."""
        return ((f, piece) for code in self for f, body in code.followed for piece in _roots.codes(body))

    def held(self) -> list[Any]:
        """What globals, variables of enclosing functions and defaults hold."""
        held = [value for code in self for _, *_, value in (*code.globals, *code.cells)]
        for function in (function for code in self for function, _ in code.followed):
            held += [*(function.__defaults__ or ()), *(function.__kwdefaults__ or {}).values()]
        return [value.func if isinstance(value, functools.partial) else value for value in held]

    def called(self) -> frozenset[str]:
        """The names by which functions are known that the code has under others."""
        return frozenset(value.__name__ for value in self.held() if isinstance(value, _FUNCTIONS))

    def spelled(self) -> frozenset[str]:
        """What code that computes names of attributes may begin from: each text that it holds."""
        bodies = [body for code in self for _, body in code.followed if _code.describe(body).dynamic]
        found: set[str] = set()
        left = [const for body in bodies for piece in _roots.codes(body) for const in piece.co_consts]
        while left:
            const = left.pop()
            if isinstance(const, str):
                found.add(const)
            elif isinstance(const, (tuple, frozenset)):
                left += const
        return frozenset(found)

    def mentioned(self, names: Collection[str]) -> set[str]:
        """Those of some names of attributes that the code may read: by a name that it computes, any of them."""
        described = [_code.describe(body) for code in self for _, body in code.followed]
        if any(each.dynamic or "__dict__" in each.attributes for each in described):
            return {*names}
        computed = tuple(frozenset().union(*(each.on_self for each in described)))
        spelled = {text for _, piece in self.bodies() for text in piece.co_consts if isinstance(text, str)}
        return {*names} & (self.names | spelled) | {name for name in names if name.startswith(computed)}

    def compared(self, layer_type: type) -> Callable[[Any], bool]:
        """Of which objects may the code compare the class, by ``type(value)``? See `_type_calls`.

        Of any that is no layer, if it compares any class; of layers, those that are of a class which it compares.
        """
        every = (_type_calls.compares(piece, function.__globals__) for function, piece in self.bodies())
        kinds = set().union(*every)

        def compared(value: Any) -> bool:
            return not isinstance(value, layer_type) or not kinds.isdisjoint(type(value).__mro__)

        return compared if kinds else lambda value: False

    def compare_values(self) -> bool:
        """May the code ask whether one value equals another?"""
        return any(_type_calls.compares_values(piece) for _, piece in self.bodies())

    def look_up_on(self, kind: type) -> bool:
        """Does the code look something up on a class itself (``dict.get(self.config, name)``)?"""
        return any(_type_calls.looks_up_on(kind, piece, function.__globals__) for function, piece in self.bodies())

    def look_past(self) -> bool:
        """Does the code name what looks an attribute up past the object's own class, where no look-up is noted?"""
        return not {"__getattribute__", "__getattr__", "getattr_static"}.isdisjoint(self.names | self.called())

    def look_at_tokens(self) -> bool:
        """Does the code name what a token of a context variable tells of before?"""
        return "old_value" in self.names

    def replace_attributes(self) -> bool:
        """Does code assign to the ``__dict__`` of an object, but for the one that a class makes?"""
        bodies = [piece for function, piece in self.bodies() if function.__name__ != "__init__"]
        steps = (step for piece in bodies if "__dict__" in piece.co_names for step in dis.get_instructions(piece))
        return any(step.opname == "STORE_ATTR" and step.argval == "__dict__" for step in steps)
