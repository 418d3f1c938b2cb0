"""Attributes that a method looks up on its own object by names that it computes."""

from __future__ import annotations

from types import CodeType
from typing import Any

import pytest

from hybrid_infer.fingerprint import _code

#: By the name's expression: with what such a name begins at any rate.
BEGINNINGS = {
    "f'norm{i}'": "norm",
    "f'norm{i}_x'": "norm",
    "f'a{i:03d}'": "a",
    "f'a{i!r}'": "a",
    "'up_' + str(i - 2)": "up_",
    "'a' + x + 'b'": "a",
    "'a' + x.k[3]": "a",
    "'a' + f(i)(x)": "a",
    "'a_' + self.k": "a_",
    "'a' 'b' + str(len(x))": "ab",
    "'a' + 'b{}'.format(x)": "a",
    "'a' + x, None": "a",
    "'level{}'.format(i)": "level",
    "'a{}'.format(i), 3": "a",
    "'a{}'.format('b'.join(x))": "a",
    "'lv{}'.format(i) + x": "lv",
    "'a%d' % i": "a",
    "'a%d_%s' % (i, 2)": "a",
    "('a' + x) % 3": "a",
    "f'{i}_a'": "",
    "'{}a'.format(i)": "",
    "'%sa' % i": "",
    "x + 'a'": "",
    "names[i]": "",
    "f(x)": "",
    "'abc'[i]": "",
    "('a' + x)[::-1]": "",
    "('a' + x).strip('a')": "",
    "'a{}'.format(i).upper()": "",
    "'a{}'.format(i)[1:]": "",
    "'abc'.upper()": "",
    "'a'.join(x)": "",
    "'a' * i": "",
    "'a' if i else x": "",
    "'a' + x if i else 'b' + x": "",
    "'x' + ('a' if i else 'b')": "",
    "x or 'a'": "",
    "str('a') + x": "",
    "('a', x)[i]": "",
    "['a' + x][0]": "",
}
WHERE = (
    "return getattr(self, {})",
    "return getattr(self, {})(x).y + 3",
    "return [getattr(self, {}) for i in x]",
    "return lambda: getattr(self, {})",
    "return getattr(self, {}), self.__dict__['k'], self.x",
)
#: Of these nobody knows whose attributes they look up.
ANYBODYS = (
    "self = n\n return getattr(self, 'a' + n)",
    "self = n\n return self.__dict__",
    "for self in n: return getattr(self, 'a' + n)",
    "def g():\n  nonlocal self\n  self = n\n g()\n return getattr(self, 'a' + n)",
    "del self\n return getattr(self, n)",
    "return getattr(self.a, 'a' + n)",
    "return getattr(n, 'a' + n)",
    "return self.a.__dict__",
    "return self.__dict__, n.__dict__",
    "return vars(n)",
    "return getattr(self[0], n)",
    "return getattr(self[i + 1], 'a' + n)",
    "return getattr(self[i if x else 0], n)",
    "return getattr(self(), n)",
    "return getattr(self(x), n)",
    "return getattr(self(x, i), n)",
    "return getattr(self + x, n)",
    "return getattr(self or x, n)",
    "return getattr(self and x, 'a' + n)",
    "return getattr(self if i else x, n)",
    "return getattr(x if i else self, n)",
    "return getattr(self[i], n, None)",
    "return getattr(self.x()[i], n)",
    "return getattr(names[0], n)",
    "return getattr(NAMES[0], n)",
    "return getattr(NAMES or x, n)",
    "return (self.x or self).__dict__[n]",
    "return (self if i else x).__dict__[n]",
    "return (lambda self: getattr(self, n))(x)",
    "return [self.__dict__ for self in x]",
    "self = 3 if i else x\n return (lambda: getattr(self, n))()",
    "class Inner:\n  def run(self, k): return getattr(self, 'a' + k)\n return Inner().run(n)",
)


def code(body: str, parameters: str = "self, i, x, names, f, n") -> CodeType:
    scope: dict[str, Any] = {}
    exec(f"def function({parameters}):\n {body}", scope)
    made: CodeType = scope["function"].__code__
    return made


@pytest.mark.parametrize("expression", BEGINNINGS)
@pytest.mark.parametrize("body", WHERE)
def test_with_what_the_name_begins(expression: str, body: str) -> None:
    found = _code.describe(code(body.format(expression)))
    assert found.on_self == {BEGINNINGS[expression]} and not found.dynamic


@pytest.mark.parametrize("body", ANYBODYS)
def test_objects_that_are_not_known_by_name(body: str) -> None:
    assert _code.describe(code(body)).dynamic


class Accessors:
    """Of each: does it look for names that no code holds?"""

    x: Any

    def __getattribute__(self, name: str) -> Any:
        names = super().__getattribute__("names")
        return super().__getattribute__(names.get(name, name))

    def __setattr__(self, name: str, value: Any) -> None:
        super().__setattr__(super().__getattribute__("names")[name], value)

    def __delattr__(self, name: str) -> None:
        super().__delattr__(super().__getattribute__("names")[name] + self.x.__getattribute__(name))

    def __getattr__(self, name: str) -> Any:
        return object.__getattribute__(self, name + "_")

    def other(self, name: str) -> Any:
        return super().__getattribute__(name)

    def __eq__(self, other: Any) -> bool:
        return bool(self.__dict__ == other.__dict__)

    def __ne__(self, other: Any) -> bool:
        other = other.x
        return bool(self.__dict__ == other.__dict__)


@pytest.mark.parametrize(
    ("name", "computes"),
    [
        ("__getattribute__", False), ("__setattr__", False), ("__delattr__", True), ("__getattr__", True),
        ("other", True), ("__eq__", False), ("__ne__", True),
    ],
)  # fmt: skip
def test_an_accessor_looks_for_what_it_was_asked(name: str, computes: bool) -> None:
    assert _code.describe(vars(Accessors)[name].__code__).dynamic == computes


def test_the_parameter_is_known_by_its_name() -> None:
    assert _code.describe(code("return getattr(this, 'a' + n)", "this, n")).dynamic
    assert _code.describe(code("return getattr(self, 'a' + n)", "n, self")).dynamic
