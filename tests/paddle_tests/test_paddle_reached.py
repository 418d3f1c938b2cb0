"""Functions that are called by others, not by their name: their branches and writes are rewritten as well."""

from __future__ import annotations

import contextlib
import functools
import importlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

paddle = pytest.importorskip("paddle")

from paddle_support import Block, grid, same, served  # noqa: E402

from hybrid_infer import CaptureError, inference  # noqa: E402

pytestmark = pytest.mark.paddle


def written(x: Any, by: float = 2.0) -> Any:
    y = x * by
    y[:, 1] = 0.0
    y[0] = y[0] * 2
    return y


def branched(x: Any) -> Any:
    if x.sum() > 0:
        return x * 2
    return x - 1


def joined(x: Any, y: Any) -> Any:
    return written(x) + branched(y)


class Called:
    def __init__(self, by: float) -> None:
        self.by = by

    def __call__(self, x: Any) -> Any:
        return written(x, self.by)

    def method(self, x: Any) -> Any:
        return branched(x) * self.by


CALLED = Called(3.0)


class Layer(paddle.nn.Layer):  # type: ignore[misc]
    def forward(self, x: Any) -> Any:
        return branched(written(x))


LAYER = Layer()


def through_partials(x: Any) -> Any:
    return functools.partial(written, by=3.0)(x), functools.partial(functools.partial(branched))(x)


def through_map(x: Any) -> Any:
    return [*map(written, [x, x + 1]), *map(functools.partial(written, by=4.0), [x]), *map(joined, [x, -x], [x, x])]


def through_methods_and_objects(x: Any) -> Any:
    return [*map(CALLED, [x]), *map(CALLED.method, (x, -x)), *map(LAYER, [x])]


def through_filter(x: Any) -> Any:
    return [branched(each) for each in filter(None, map(branched, []))], [*filter(lambda each: True, [branched(x)])]


def through_reduce(x: Any) -> Any:
    return functools.reduce(joined, [x, x + 1, x * 2])


def with_a_name_of_its_own(x: Any) -> Any:
    def map(function: Any, *values: Any) -> Any:
        return [function(each) * 5 for each in values]

    return map(branched, x, -x)


def of_other_things(x: Any) -> Any:
    return x * sum(map(float, ["1", "2"])) + len(list(map(str, range(3)))) + max(map(abs, (-4, 2)))


METHODS = [
    through_partials, through_map, through_methods_and_objects, through_filter, through_reduce, with_a_name_of_its_own,
    of_other_things,
]  # fmt: skip


@pytest.mark.parametrize("method", METHODS)
def test_what_others_call(method: Callable[[Any], Any]) -> None:
    mine = inference(method, fallback="error")
    with paddle.no_grad():
        for x in (grid(2, 4), -grid(2, 4), grid(2, 4) + 1, -1 - grid(2, 4)):
            same(mine(x), method(x))
    served(captures=1)


def test_which_line_a_rewritten_one_was_made_of_is_found_out_where_somebody_asks() -> None:
    from paddle.jit.dy2static.origin_info import global_origin_info_map as known

    def refused(x: Any) -> Any:
        return written(x) * [1.0, 2.0][x.sum() > 0]

    before = len(known)
    with paddle.no_grad():
        inference(written, fallback="error")(grid(2, 4))
    assert len(known) == before
    with paddle.no_grad(), pytest.raises(CaptureError, match=rf"{__name__}.py:{refused.__code__.co_firstlineno + 1}"):
        inference(refused, fallback="error")(grid(2, 4))
    assert len(known) > before


@contextlib.contextmanager
def scope(of: float, level: int = 2) -> Iterator[None]:
    yield


@scope(3.0, level=1)
def in_a_scope(x: Any, by: float = 2.0) -> Any:
    return branched(x) * by


class Around(paddle.nn.Layer):  # type: ignore[misc]
    @inference(fallback="error", verify="off")
    @paddle.amp.auto_cast(enable=False, level="O1")
    def method(self, x: Any, *, by: float = 2.0) -> Any:
        return in_a_scope(x, by=by) + in_a_scope(x)


def test_context_managers_as_decorators() -> None:
    layer = Around()
    for x in (paddle.ones([2]), -paddle.ones([2]), paddle.ones([2])):
        same(layer.method(x, by=3.0), branched(x) * 5.0)
    served(captures=1)


def matched(x: Any, mode: str) -> Any:
    match (mode, x.ndim):
        case ("one" | "two", int() as rank) if rank == 2:
            return x * 2
        case _:
            return x


def through_match(x: Any) -> Any:
    return matched(x, "two") + written(x)


def test_a_function_that_the_framework_cannot_write_is_taken_as_it_is() -> None:
    hot = inference(through_match, fallback="error", verify="off")
    for x in (grid(3, 4), -grid(3, 4)):
        same(hot(x), through_match(x))
    served(captures=1)


PACKAGE = {
    "__init__": "__version__ = '2.5'",
    "steps": "def shift(x):\n    return x + 1\n",
    "deep/__init__": "",
    "deep/helper": """
def helped(x):
    from .. import __version__
    from ..steps import shift

    if x.sum() > 0:
        return shift(x) * float(__version__)
    return x
""",
    "net": """
__scale__ = 3.0


def method(x):
    from . import steps
    from .deep.helper import helped

    if __name__ == "imports_inside.net" and __spec__.parent == __package__:
        x = x * __scale__
    return helped(steps.shift(x))
""",
}


def test_imports_inside_a_package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Rewritten code has the module that it was made of: what it imports, and what it asks of its module."""
    for name, source in PACKAGE.items():
        file = tmp_path / "imports_inside" / f"{name}.py"
        file.parent.mkdir(exist_ok=True, parents=True)
        file.write_text(source)
    monkeypatch.syspath_prepend(tmp_path)
    method = importlib.import_module("imports_inside.net").method
    hot = inference(method, fallback="error", verify="off")
    for size in (2, 3, 4):
        x = paddle.ones([size])
        same(hot(x), method(x))
    served(captures=2)


def fast(function: Any) -> Any:
    """A decorator of the program's, as projects have one with their options."""
    return inference(backend="onnxruntime", verify="off", fallback="error")(function)


class Twice(Block):
    @fast
    def part(self, x: Any) -> Any:
        return super().forward(x) if x.sum() > 0 else x - 1

    @paddle.no_grad()
    @fast
    def quiet(self, x: Any) -> Any:
        return x * 3 if x.sum() > 0 else x * 2

    @fast
    def forward(self, x: Any) -> Any:
        return self.part(x) + self.quiet(x)


class Derived(Twice):
    @fast
    def forward(self, x: Any) -> Any:
        return super().forward(x) * 2


@pytest.mark.parametrize("kind", (Twice, Derived))
def test_a_decorator_of_the_programs_own_does_not_run_again(kind: type[Any]) -> None:
    layer, eager = kind(), Block()
    eager.set_state_dict(layer.state_dict())
    times = 2 if kind is Derived else 1
    with paddle.no_grad():
        for x in (grid(2, 4) + 1, grid(2, 4) - 2, grid(2, 4) + 1):
            part, quiet = (eager(x), x * 3) if x.sum() > 0 else (x - 1, x * 2)
            same(layer(x), (part + quiet) * times)
    served(captures=1, part="Twice.forward" if kind is Twice else "Derived.forward")


def made(by: float) -> Callable[[Any], Any]:
    def scaled(x: Any) -> Any:
        if x.sum() > 0:
            return x * by
        return written(x, by)

    return scaled


def renamed(by: float) -> Callable[[Any], Any]:
    function = made(by)
    function.__name__ = function.__qualname__ = f"scaled_by_{by:.0f}"
    return function


def unnamed() -> Callable[[Any], Any]:
    function = lambda x: x * 2  # noqa: E731
    function.__name__ = function.__qualname__ = "doubled"
    return function


@pytest.mark.parametrize("function", [made(2.0), renamed(3.0), unnamed()], ids=lambda function: function.__name__)
def test_functions_that_go_by_no_name_of_their_module(function: Callable[[Any], Any]) -> None:
    """As those that another one has made, and those that were given another name."""

    def through(x: Any) -> Any:
        return function(x) + 1

    x, y = grid(2, 4) + 3, grid(2, 4) - 3
    with paddle.no_grad():
        for method in (function, through):
            hot = inference(method, fallback="error", verify="off")
            for given in (x, y):
                same(hot(given), method(given))
