"""Looking through the framework's namespaces: how much of them is looked at again, and what is seen of a change."""

from __future__ import annotations

import gc
import types
import weakref
from collections.abc import Iterator
from typing import Any

import pytest

from hybrid_infer.fingerprint import _framework_spaces

WHERE = "a namespace of a test"


def ours(x: Any) -> Any:
    return x


def theirs(x: Any) -> Any:
    return x + 1


def another(x: Any) -> Any:
    return x + 2


class Callable:
    def __call__(self, x: Any) -> Any:
        return x


@pytest.fixture
def space() -> Iterator[dict[str, Any]]:
    """A namespace with functions, a class, a module and plain values, all the framework's own."""
    names: dict[str, Any] = {f"function{n}": types.FunctionType(ours.__code__, globals()) for n in range(20)}
    yield {**names, "kind": Callable, "module": types, "number": 1.5, "builtin": len}
    _framework_spaces._looked.pop(WHERE, None)


class Look:
    """Looks through a namespace for what has another code than `ours`, and counts what it is asked of."""

    def __init__(self, space: dict[str, Any]) -> None:
        self.space, self.asked = space, list[str]()

    def foreign(self, name: str, value: Any) -> bool:
        self.asked.append(name)
        return isinstance(value, Callable) or getattr(value, "__code__", ours.__code__) is not ours.__code__

    def __call__(self) -> list[str]:
        self.asked.clear()
        return [name for name, _ in _framework_spaces.strange(WHERE, self.space, self.foreign)]


def test_what_is_the_frameworks_own_is_asked_for_once(space: dict[str, Any]) -> None:
    look = Look(space)
    assert look() == [] and len(look.asked) == len(space)
    assert look() == [] and look.asked == []


def test_a_function_in_the_place_of_another_is_seen_each_time(space: dict[str, Any]) -> None:
    look = Look(space)
    look()
    own, space["function3"] = space["function3"], theirs
    assert look() == ["function3"] and len(look.asked) > len(space)
    assert look() == ["function3"] and look.asked == ["function3"]
    space["function3"] = another
    assert look() == ["function3"]
    space["function3"] = own
    assert look() == []


def test_a_name_more_and_one_less_are_seen(space: dict[str, Any]) -> None:
    look = Look(space)
    look()
    space["added"] = theirs
    assert look() == ["added"]
    del space["added"]
    assert look() == []


def test_other_code_of_the_same_function_is_seen(space: dict[str, Any]) -> None:
    look = Look(space)
    look()
    space["function3"].__code__ = theirs.__code__
    assert look() == ["function3"]


@pytest.mark.parametrize("form", [property, staticmethod, classmethod])
def test_another_property_in_the_place_of_one_is_seen(space: dict[str, Any], form: Any) -> None:
    space["function3"] = own = form(ours)
    look = Look(space)
    assert look() == [] and look() == [] and look.asked == []
    space["function3"] = form(theirs)
    look()
    assert "function3" in look.asked
    space["function3"] = own
    assert look() == []


def test_an_object_that_is_called_is_asked_for_each_time(space: dict[str, Any]) -> None:
    look = Look(space)
    look()
    space["number"] = Callable()
    assert look() == ["number"]
    assert look() == ["number"] and look.asked == ["number"]


def test_nothing_of_a_program_is_kept(space: dict[str, Any]) -> None:
    look = Look(space)
    put = types.FunctionType(theirs.__code__, globals())
    kept = weakref.ref(put)
    space["function3"] = put
    assert look() == ["function3"]
    del space["function3"], put
    gc.collect()
    assert kept() is None
