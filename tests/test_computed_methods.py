"""Methods that code finds by names which it computes: a change of one is seen, on whatever object it is looked up."""

from __future__ import annotations

import functools
import types
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from support import layer_class

from hybrid_infer import inference


def _thrice(self: Any, x: Any) -> Any:
    return x * 3


def _hundredfold(self: Any, x: Any) -> Any:
    return x * 100


class Helper:
    def op_a(self, x: Any) -> Any:
        return x * 3


class Runner:
    def run(self, kind: str, x: Any) -> Any:
        return getattr(self, "op_" + kind)(x)


class Ops:
    op_a = _thrice


class OfClasses(type):
    def run(self, kind: str, x: Any) -> Any:
        return getattr(self, "op_" + kind)(None, x)

    def by_dict(self, kind: str, x: Any) -> Any:
        return self.__dict__["op_" + kind](None, x)


class Made(metaclass=OfClasses):
    op_a = _thrice


TABLE: dict[str, Any] = {"run": Runner.run}
PARTIAL = functools.partial(Runner.run, Helper())
#: Each makes a layer, and gives the class and the name to be replaced there.
Case = Callable[[Any], tuple[Any, type, str]]


def item_of_itself(base: Any) -> tuple[Any, type, str]:
    class Block(base):  # type: ignore[misc]
        op_a = _thrice

    class Blocks(base):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.block, self.kind = Block(), "a"

        def __getitem__(self, i: int) -> Any:
            return self.block

        def forward(self, x: Any) -> Any:
            return getattr(self[0], "op_" + self.kind)(x)

    return Blocks(), Block, "op_a"


def another_in_its_place(base: Any) -> tuple[Any, type, str]:
    class Block(base):  # type: ignore[misc]
        op_a = _thrice

    class Net(base):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.block, self.kind = Block(), "a"

        def forward(self, x: Any) -> Any:
            return getattr(self.block or self, "op_" + self.kind)(x)

    return Net(), Block, "op_a"


def handed_on_by_an_accessor(base: Any) -> tuple[Any, type, str]:
    class Head(base):  # type: ignore[misc]
        op_a = _thrice

    class Net(base):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.head, self.kind = Head(), "a"

        def __getattr__(self, name: str) -> Any:
            try:
                return super().__getattr__(name)
            except AttributeError:
                return getattr(self.head, name)

        def forward(self, x: Any) -> Any:
            return getattr(self, f"op_{self.kind}")(x)

    return Net(), Head, "op_a"


def another_name_by_an_accessor(base: Any) -> tuple[Any, type, str]:
    class Net(base):  # type: ignore[misc]
        op_a = _thrice

        def __getattr__(self, name: str) -> Any:
            if name == "scaled":
                return getattr(self, "op_" + "abc"[0])
            return super().__getattr__(name)

        def forward(self, x: Any) -> Any:
            return self.scaled(x)

    return Net(), Net, "op_a"


def method_of_a_strange_class(base: Any) -> tuple[Any, type, str]:
    class Net(base):  # type: ignore[misc]
        op_a = _thrice

        def forward(self, x: Any) -> Any:
            return Runner.run(self, "a", x)  # type: ignore[arg-type]

    return Net(), Net, "op_a"


def method_from_a_table(base: Any) -> tuple[Any, type, str]:
    class Net(base):  # type: ignore[misc]
        op_a = _thrice

        def forward(self, x: Any) -> Any:
            return TABLE["run"](self, "a", x)

    return Net(), Net, "op_a"


def bound_to_a_strange_object(base: Any) -> tuple[Any, type, str]:
    class Net(base):  # type: ignore[misc]
        def forward(self, x: Any) -> Any:
            return PARTIAL("a", x)

    return Net(), Helper, "op_a"


def class_made_inside(base: Any) -> tuple[Any, type, str]:
    class Net(base):  # type: ignore[misc]
        def forward(self, x: Any) -> Any:
            class Both(Runner, Ops):
                pass

            return Both().run("a", x)

    return Net(), Ops, "op_a"


def class_of_its_own_inside(base: Any) -> tuple[Any, type, str]:
    class Net(base):  # type: ignore[misc]
        def forward(self, x: Any) -> Any:
            class Inner(Ops):
                def run(self, kind: str, x: Any) -> Any:
                    return getattr(self, "op_" + kind)(x)

            return Inner().run("a", x)

    return Net(), Ops, "op_a"


def function_with_another_self(base: Any) -> tuple[Any, type, str]:
    class Net(base):  # type: ignore[misc]
        def forward(self, x: Any) -> Any:
            return (lambda self, kind: getattr(self, "op_" + kind)(x))(Helper(), "a")

    return Net(), Helper, "op_a"


def of_a_class(base: Any) -> tuple[Any, type, str]:
    class Net(base):  # type: ignore[misc]
        def forward(self, x: Any) -> Any:
            return Made.run("a", x)

    return Net(), Made, "op_a"


def in_the_dict_of_a_class(base: Any) -> tuple[Any, type, str]:
    class Net(base):  # type: ignore[misc]
        def forward(self, x: Any) -> Any:
            return Made.by_dict("a", x)

    return Net(), Made, "op_a"


CASES: list[Case] = [
    item_of_itself, another_in_its_place, handed_on_by_an_accessor, another_name_by_an_accessor,
    method_of_a_strange_class, method_from_a_table, bound_to_a_strange_object, class_made_inside,
    class_of_its_own_inside, function_with_another_self, of_a_class, in_the_dict_of_a_class,
]  # fmt: skip


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.__name__)
def test_a_method_in_the_place_of_another_is_called(
    framework: Any, case: Case, monkeypatch: pytest.MonkeyPatch
) -> None:
    layer, kind, name = case(layer_class(framework))
    layer = inference(layer.eval() or layer)
    x = framework.ones([3])
    with framework.no_grad():
        answers = [float(np.asarray(layer(x))[0]) for _ in range(3)]
        monkeypatch.setattr(kind, name, _hundredfold)
        answers += [float(np.asarray(layer(x))[0]) for _ in range(3)]
        monkeypatch.setattr(kind, name, types.FunctionType(_thrice.__code__.replace(co_consts=(None, 4)), {}))
        answers += [float(np.asarray(layer(x))[0])]
    assert answers == [3.0] * 3 + [100.0] * 3 + [4.0]
