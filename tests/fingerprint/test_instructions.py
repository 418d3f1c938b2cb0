"""Instructions differ between versions of Python; what is found in code that does the same does not."""

from __future__ import annotations

import datetime
import sys
from collections.abc import Callable
from typing import Any

import pytest

from hybrid_infer.capture import _interpreter
from hybrid_infer.fingerprint import _code, _computed_names, _iteration, _made
from hybrid_infer.fingerprint._iteration import Body, Use

FIRST = {
    "and": lambda self: [n for n in self.a.keys() & self.b.keys()],
    "or": lambda self: [n for n in self.a.keys() | self.b.keys()],
    "xor": lambda self: [n for n in self.a.keys() ^ self.b.keys()],
    "subtract": lambda self: [n for n in self.a.keys() - self.b],
    "comprehension": lambda self: [n for n in {n for n in self.a if n not in self.b}],
    "generator": lambda self: list(set(n for n in self.a if n in self.b)),
    "lambda": lambda self: list({*map_values(lambda n: n, self.a), *self.b}),
}


def map_values(function: Callable[[Any], Any], values: Any) -> Any:
    return [function(each) for each in values]


def of(function: Any) -> list[frozenset[str] | None]:
    return [*_made.of(Body(function.__code__, globals()), lambda name: None)]


@pytest.mark.parametrize("name", [name for name in FIRST if name != "lambda"])
def test_a_set_is_made_of_what_names_lead_to(name: str) -> None:
    assert of(FIRST[name]) == [frozenset({"a", "b"})]


def test_a_set_in_place_is_one_too() -> None:
    def smaller(self: Any) -> Any:
        names = self.a
        names &= self.b.keys()
        return list(names)

    assert of(smaller) == [frozenset({"a", "b"})]


def test_what_is_put_into_a_set_later_is_not_known() -> None:
    def added(self: Any) -> Any:
        names = set()
        for name in self.a:
            names.add(name)
        return list(names)

    def updated(self: Any) -> Any:
        names = {self.a}
        names.update(self.b)
        return list(names)

    def inside(self: Any) -> Any:
        names = {name for name in self.a}
        map_values(lambda name: names.add(name), self.b)
        return list(names)

    def only_asked(self: Any) -> Any:
        names = set()
        return [name for name in self.a if name not in names and names.add(name) is None]

    united: list[Any] = [lambda self: list(set().union(self.a)), lambda self: list({*self.a}.union(self.b))]
    assert [of(each) for each in (added, updated, inside, *united)] == [[None]] * 5
    assert of(only_asked) == []


def test_of_what_a_function_gives_back_it_is_not_known() -> None:
    assert of(FIRST["lambda"]) == [None]


def test_a_comprehension_has_variables_of_the_function_around() -> None:
    kept = ["a"]

    def of_local(self: Any) -> Any:
        words = self.text.split()
        return [n for n in {n + word for n in self.a for word in words}]

    def of_nested(self: Any) -> Any:
        words = self.text.split()
        return [n for n in {n for more in self.a for n in sorted(word + more for word in words)}]

    assert of(of_local) == of(of_nested) == [None]
    assert of(lambda self: [n for n in {n for n in self.a if n in kept}]) == [frozenset({"a", "kept"})]


def test_a_function_is_not_the_set_that_its_default_is() -> None:
    def first(self: Any) -> int:
        def joined(*, names: Any = self.names) -> str:
            return ",".join(names)

        return 1 if joined() == "a,b" else 2

    assert _iteration.of_name("names", [Body(first.__code__, {})]) is Use.HASHES


def test_what_is_asked_of_a_set_counts_behind_functions_that_have_variables_of_the_one_around() -> None:
    def asked(self: Any, more: Any) -> int:
        return len(self.names | map_values(lambda n: more + n, ()))

    def given(self: Any, more: Any) -> Any:
        return list(self.names | map_values(lambda n: more + n, ()))

    assert _iteration.of_name("names", [Body(asked.__code__, {})]) is Use.NONE
    assert _iteration.of_name("names", [Body(given.__code__, {})]) is Use.HASHES


def test_a_set_that_an_attribute_gets_more_of_is_asked_or_gone_through_by_its_name() -> None:
    def in_place(self: Any) -> None:
        self.names |= {"a", "b"}

    def another(self: Any) -> None:
        self.others = self.names | {"a", "b"}

    def asked(self: Any, x: Any) -> Any:
        return x if "c" in self.names else -x

    def through(self: Any, x: Any) -> Any:
        return [x for _ in self.names]

    def through_others(self: Any, x: Any) -> Any:
        return [x for _ in self.others]

    def use(*functions: Any) -> Use | None:
        return _iteration.of_name("names", [Body(each.__code__, {}) for each in functions])

    assert use(asked, in_place) is Use.NONE
    # Where what is new stands goes by the hashes.
    assert use(through, in_place) is use(through_others, another) is Use.HASHES


def test_a_set_that_is_asked_inside_of_a_block_is_asked() -> None:
    def asked(self: Any, x: Any) -> Any:
        with self.lock:
            try:
                return x + len(self.names)
            finally:
                self.done = True

    def given(self: Any) -> Any:
        try:
            return self.names
        finally:
            self.done = True

    assert _iteration.of_name("names", [Body(asked.__code__, {})]) is Use.NONE
    assert _iteration.of_name("names", [Body(given.__code__, {})]) is Use.NONE


def test_the_name_of_the_function_around_says_nothing_of_what_code_does() -> None:
    source = "def {}(x):\n def inner(): return x\n return inner, [n for n in x], lambda: x"
    spaces: list[dict[str, Any]] = [{}, {}]
    for name, space in zip(("one", "another"), spaces, strict=True):
        exec(source.format(name), space)
    one, another = spaces[0]["one"].__code__, spaces[1]["another"].__code__
    assert _code.describe(one).digest == _code.describe(another).digest


def test_a_computed_name_behind_what_turns_the_stack_is_not_one_of_the_objects_own() -> None:
    def compared(self: Any, x: Any) -> Any:
        return getattr(self, "a" if 0 < x < 3 else x), getattr(self < x < 3, x)

    assert _code.describe(compared.__code__).dynamic
    assert not _computed_names.whole(compared.__code__, 0, 1)


def test_how_many_arguments_a_call_has_that_names_some() -> None:
    found: list[int | None] = []

    def note(frame: Any, event: str, called: Any) -> None:
        if event == "c_call" and getattr(called, "__name__", "") == "fromtimestamp":
            found.append(_interpreter.arguments(frame))

    before = sys.getprofile()
    sys.setprofile(note)
    try:
        datetime.datetime.fromtimestamp(0, tz=datetime.timezone.utc)
        datetime.datetime.fromtimestamp(0)
    finally:
        sys.setprofile(before)
    assert found == [2, 1]
