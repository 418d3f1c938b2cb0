"""What is read in bytecode is the same for every Python, whatever instructions the compiler chooses."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import pytest

from hybrid_infer.capture import _identity
from hybrid_infer.fingerprint import _code, _iteration, _made
from hybrid_infer.fingerprint._iteration import Body, Use


def inside_a_comprehension(self: Any, x: Any) -> Any:
    return [each for each in {str(n) for n in x}]


def in_a_call(self: Any, x: Any) -> Any:
    return list({str(n) for n in x})


def of_a_list(self: Any, x: Any) -> Any:
    return [each for each in set([str(n) for n in x])]


def of_two_loops(self: Any, x: Any) -> Any:
    names = {str(n) + m for n in x for m in n if m}
    return [each for each in names]


def one_or_the_other(self: Any, x: Any) -> Any:
    return [each for each in set(x if self.own else self.names)]


def this_or_that(self: Any, x: Any) -> Any:
    return [each for each in set(x or self.names)]


def written_out(self: Any, x: Any) -> Any:
    return [each for each in {str(x) if self.own else 1}]


@pytest.mark.parametrize(
    "code",
    [inside_a_comprehension, in_a_call, of_a_list, of_two_loops, one_or_the_other, this_or_that, written_out],
)
def test_a_set_of_whatever_a_call_gives_may_have_any_order(code: Callable[..., Any]) -> None:
    found = [*_made.of(Body(code.__code__, {}), lambda name: None)]
    # Python 3.10 makes the set of either side by itself: there is nothing to know of that with a constant.
    assert None in found and not any(found)


def of_attributes(self: Any) -> Any:
    found = []
    for each in {layer.name for layer in self.layers}:
        found.append(each)
    return found


def of_attributes_at_once(self: Any) -> Any:
    return [each for each in {layer.name for layer in self.layers}]


@pytest.mark.parametrize("code", [of_attributes, of_attributes_at_once])
def test_names_that_lead_to_the_elements_of_a_set_are_found_in_a_comprehension(code: Callable[..., Any]) -> None:
    assert [*_made.of(Body(code.__code__, {}), lambda name: None)] == [frozenset({"layers", "name"})]


def counted(self: Any, x: Any) -> Any:
    return len({str(n) for n in x})


def in_order(self: Any, x: Any) -> Any:
    return sorted({str(n) for n in x})


def looked_up(self: Any, x: Any) -> Any:
    keep = {str(n) for n in x}
    return [each for each in x if each in keep]


def chosen(self: Any, x: Any) -> Any:
    return len(set(x if self.own else self.names))


@pytest.mark.parametrize("code", [counted, in_order, looked_up, chosen])
def test_a_set_that_is_only_asked_counts_for_nothing(code: Callable[..., Any]) -> None:
    assert [*_made.of(Body(code.__code__, {}), lambda name: None)] == []


def handed_on_beside_a_comprehension(self: Any, x: Any) -> Any:
    return isinstance(self.names, [type(n) for n in x])


def two_variables(self: Any, x: Any) -> Any:
    names = self.names
    y = x
    return y in names


def test_a_set_is_followed_past_comprehensions_and_instructions_for_two_variables() -> None:
    for code in (handed_on_beside_a_comprehension, two_variables):
        assert _iteration.of_name("names", [Body(code.__code__, {})]) is Use.NONE


def kept_by_address(x: Any) -> Any:
    known: dict[int, Any] = {}
    for each in x:
        place = id(each)
        if place not in known:
            known[place] = x
    return x


def test_an_address_in_one_of_two_variables_only_tells_apart() -> None:
    steps = _identity._Numbers(kept_by_address.__code__).steps
    [call] = [step.offset for step in steps if step.opname in _iteration.CALLS]
    assert _identity.only_tells_apart(kept_by_address.__code__, call)


def in_a_class(self: Any) -> Any:
    class Holder:
        layer = self

    return Holder


def by_a_function(self: Any) -> Any:
    return lambda: self


def only_attributes(self: Any) -> Any:
    def inner() -> Any:
        return self.own

    return inner(), [self.own for _ in range(2)], (lambda: self.own)()


def test_an_object_escapes_where_code_inside_takes_it_whole_and_only_there() -> None:
    assert _code.escapes(in_a_class.__code__) and _code.escapes(by_a_function.__code__)
    assert not _code.escapes(only_attributes.__code__)


CLASS_INSIDE = """
def function(x):
    class Inner:
        def run(self):
            self.alpha, self.beta, self.gamma, self.delta, self.epsilon, self.zeta = range(6)
    return Inner
from hybrid_infer.fingerprint import _code
print(_code.mark(function.__code__))
"""


def test_a_class_inside_a_function_has_one_digest_in_every_process() -> None:
    # Python 3.13.0 lists the attributes that a class's methods assign in the order of a set.
    marks = {
        subprocess.run(
            [sys.executable, "-c", CLASS_INSIDE], env={**os.environ, "PYTHONHASHSEED": seed}, check=True, text=True,
            capture_output=True,
        ).stdout
        for seed in "123"
    }  # fmt: skip
    assert len(marks) == 1
