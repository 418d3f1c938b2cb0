"""The comparison of the fuzz test finds each kind of wrong answer: one of each is planted."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from fuzz_check import check, shrunk
from fuzz_grammar import Statement
from fuzz_grow import grow
from fuzz_program import Program
from fuzz_rules import Rule

FRAMEWORKS = pytest.mark.parametrize("framework", ["torch", "paddle"])


def program(framework: str) -> Program:
    """Three sizes, at one of which the method raises, and a dict that it changes."""
    lines = ("v0 = x * 2", "v1 = x.shape[0] + 1", "assert v1 != 8", "table['n'] = v1", "v2 = x > 0", "v3 = x + 1")
    statements = [Statement(line.partition(" ")[0], line, Rule(line), "x") for line in lines]
    calls = [[f"tensor('float32', ({rows}, 2), {rows})", "{'n': 0}"] for rows in (3, 5, 7, 5)]
    return Program(
        framework, 0, ("x", "table"), calls, [1, 1, 2, 2], (), statements, ["v0", "v1", "v2", "[v3]", "x"], "tuple"
    )


class Planted:
    """The method, but for what `change` makes of its result where it has five rows."""

    def __init__(self, layer: Any, change: Callable[[list[Any], Any, dict[str, int]], Any]) -> None:
        self.layer, self.change = layer, change

    def __call__(self, x: Any, table: dict[str, int]) -> Any:
        result = self.layer(x, table)
        return self.change(list(result), x, table) if x.shape[0] == 5 else result


class Overwriting(Planted):
    """A result that a later call writes over."""

    last: Any = None

    def __call__(self, x: Any, table: dict[str, int]) -> Any:
        result = self.layer(x, table)
        if self.last is not None:
            self.last[:] = 0
        self.last = result[0]
        return result


class Careless(Planted):
    """Answers where the method raises."""

    def __call__(self, x: Any, table: dict[str, int]) -> Any:
        return self.layer(x[:6], table) if x.shape[0] == 7 else self.layer(x, table)


def _replace(at: int, make: Callable[[Any], Any]) -> Callable[[list[Any], Any, dict[str, int]], Any]:
    def change(result: list[Any], x: Any, table: dict[str, int]) -> Any:
        result[at] = make(result[at])
        return tuple(result)

    return change


def _raise(result: list[Any], x: Any, table: dict[str, int]) -> Any:
    raise RuntimeError("of an engine")


def _leave(result: list[Any], x: Any, table: dict[str, int]) -> Any:
    table["n"] = 0
    return tuple(result)


CHANGES: dict[str, tuple[str, Callable[[list[Any], Any, dict[str, int]], Any]]] = {
    "a value": ("wrong", _replace(0, lambda tensor: tensor + 0.01)),
    "a size": ("wrong", _replace(0, lambda tensor: tensor[:-1])),
    "a rank": ("wrong", _replace(0, lambda tensor: tensor[None])),
    "a type": ("wrong", _replace(2, lambda tensor: tensor * 1)),
    "a number": ("wrong", _replace(1, lambda number: number + 1)),
    "the type of a number": ("wrong", _replace(1, float)),
    "a boolean": ("wrong", _replace(2, lambda tensor: ~tensor)),
    "the structure": ("wrong", _replace(3, tuple)),
    "a tensor too few": ("wrong", _replace(3, lambda listed: listed[:-1])),
    "a copy of an argument": ("identity", _replace(4, lambda tensor: tensor * 1)),
    "an argument not changed": ("arguments", _leave),
    "an error": ("raised", _raise),
}


@FRAMEWORKS
@pytest.mark.parametrize("planted", CHANGES)
def test_a_planted_difference_is_found(framework: str, planted: str, tmp_path: Path) -> None:
    kind, change = CHANGES[planted]
    found = check(program(framework), tmp_path, lambda layer: Planted(layer, change))
    assert found.kind == kind and "at call 1" in found.problem, found


@FRAMEWORKS
def test_a_result_that_is_overwritten_is_found(framework: str, tmp_path: Path) -> None:
    found = check(program(framework), tmp_path, lambda layer: Overwriting(layer, _leave))
    assert found.kind == "overwritten", found


@FRAMEWORKS
def test_an_answer_where_eager_raises_is_found(framework: str, tmp_path: Path) -> None:
    found = check(program(framework), tmp_path, lambda layer: Careless(layer, _leave))
    assert found.kind == "answered" and "at call 2" in found.problem, found


@FRAMEWORKS
def test_what_does_not_differ_is_no_finding(framework: str, tmp_path: Path) -> None:
    assert not check(program(framework), tmp_path, lambda layer: layer).problem


@FRAMEWORKS
def test_a_finding_is_made_small(framework: str, tmp_path: Path) -> None:
    _, change = CHANGES["a value"]
    small = shrunk(program(framework), tmp_path, "wrong", 60, lambda layer: Planted(layer, change))
    assert small.calls == [["tensor('float32', (5, 2), 5)", "{'n': 0}"]]
    assert not small.statements and small.returned == ["x"]


@FRAMEWORKS
def test_a_seed_always_gives_the_same_program(framework: str) -> None:
    source = grow(framework, 5).source()
    assert source == grow(framework, 5).source() != grow(framework, 6).source()
    compile(source, "pasted.py", "exec")
