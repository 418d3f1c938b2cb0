"""What looking for sets in code and in large tables costs: each body is read once, plain lists are asked nothing."""

from __future__ import annotations

import dataclasses
import dis
import inspect
import typing
from collections.abc import Iterator
from pathlib import Path
from types import CodeType, SimpleNamespace
from typing import Any

import pytest

from hybrid_infer.fingerprint import _iteration, _made, _steps
from hybrid_infer.fingerprint._iteration import Body
from hybrid_infer.objects import _unordered


@pytest.fixture
def read(monkeypatch: pytest.MonkeyPatch) -> list[CodeType]:
    """The code whose instructions were read."""
    found: list[CodeType] = []

    def get_instructions(code: CodeType) -> Any:
        found.append(code)
        return dis.get_instructions(code)

    noting = SimpleNamespace(**{**vars(dis), "get_instructions": get_instructions})
    monkeypatch.setattr(_steps, "dis", noting)
    return found


def test_a_body_is_read_once_for_all_the_sets_that_are_constants_of_it(read: list[CodeType]) -> None:
    lines = "\n".join(f"    if name in {{'a{n}', 'b{n}'}}: return {n}" for n in range(20))
    space: dict[str, Any] = {}
    exec(f"def asked(name):\n{lines}\n", space)
    body = Body(space["asked"].__code__, space)
    found = [*_iteration.of_constants(body, lambda name: None)]
    assert len(found) == 20 and not any(use for _, use in found)
    assert len(read) == 1


def test_a_body_is_read_once_for_all_the_names_that_it_has(read: list[CodeType]) -> None:
    def through(self: Any) -> Any:
        return [name for name in self.names], [name for name in self.others], "a" in self.asked

    bodies = [Body(through.__code__, globals())]
    uses = [_iteration.of_name(name, bodies) for name in ("names", "others", "asked")]
    assert uses == [_iteration.Use.ORDER, _iteration.Use.ORDER, _iteration.Use.NONE]
    assert len(read) == len({*read})


def test_a_body_that_makes_no_set_is_not_read_for_those_that_it_makes(read: list[CodeType]) -> None:
    def none(self: Any, x: Any) -> Any:
        return [name for name in self.names if name in {"a", "b"}], x.shape, sorted(self.others)

    assert not [*_made.of(Body(none.__code__, globals()), lambda name: None)]
    assert not read


def test_what_is_not_read_makes_no_set() -> None:
    def pieces(code: CodeType) -> Iterator[CodeType]:
        yield code
        for each in code.co_consts:
            if isinstance(each, CodeType):
                yield from pieces(each)

    files = [module.__file__ for module in (dataclasses, inspect, typing)]
    codes = [code for file in files for code in pieces(compile(Path(str(file)).read_text(), str(file), "exec"))]
    makes = {code for code in codes if [*_made._sites(Body(code, {}))]}
    assert makes
    assert all(map(_made.may_make, makes))
    assert sum(map(_made.may_make, codes)) < len(codes) / 3


def test_plain_lists_of_a_table_are_not_asked_whether_they_are_tensors() -> None:
    class Asked(type):
        def __instancecheck__(cls, value: object) -> bool:
            asked.append(value)
            return False

    class Tensor(metaclass=Asked):
        pass

    asked: list[object] = []
    table = [[[float(n)], {"row": [n, n]}, (n, [n])] for n in range(100)]
    found = [*_unordered.sets_in([table, {"names": {"a"}}, {(frozenset({"b"}), 1): 2}], "table", (Tensor,))]
    assert found == [("table", ["a"]), ("table", ["b"])]
    assert len(asked) == 2, asked  # the sets
