"""Arguments that a method writes to: elements of caches of a fixed size, and writes that the tracer does not see."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

paddle = pytest.importorskip("paddle")

from paddle_support import counts, eagerly, grid, same, served  # noqa: E402

from hybrid_infer import inference  # noqa: E402
from hybrid_infer._types import OVERLAP  # noqa: E402

pytestmark = pytest.mark.paddle


def pair(rows: int) -> tuple[Any, Any]:
    return grid(rows, 4), grid(rows, 4) * 3 + 1


def a_column(x: Any, c: Any) -> Any:
    c[:, 1] = x[:, 0]
    return c * 2


def handed_back(x: Any, c: Any) -> Any:
    c[:, 1:3] = x[:, 1:3]
    return c


def twice_over(x: Any, c: Any) -> Any:
    c[0] = x[1] + c[1]
    c[:, 2] = c[:, 0]
    return c.sum()


def by_another_name(x: Any, c: Any) -> Any:
    kept = {"rows": c}
    kept["rows"][1] = x[0]
    c[0] = 3.0
    return kept["rows"] + 1


@pytest.mark.parametrize("function", [a_column, handed_back, twice_over, by_another_name])
def test_what_a_method_writes_is_written(function: Callable[..., Any]) -> None:
    method = inference()(function)
    with paddle.no_grad():
        for n in range(6):
            x, c = pair(3 + n % 4)
            own = c.clone()
            found, expected = method(x, c), function(x, own)
            same((found, c), (expected, own))
            assert (found is c) == (expected is own)
    served(captures=2)


def test_a_cache_in_a_dict() -> None:
    def step(x: Any, cache: Any) -> Any:
        cache["keys"][:, 1] = x[:, 0]
        return (x * cache["keys"]).sum(), cache["keys"]

    method = inference()(step)
    with paddle.no_grad():
        for n in range(4):
            x, c = pair(3)
            mine, own = {"keys": c}, {"keys": c.clone()}
            found, expected = method(x * n, mine), step(x * n, own)
            same((found, mine["keys"]), (expected, own["keys"]))
            assert found[1] is mine["keys"] is c
    served(captures=1)


def a_row_of_it(x: Any, c: Any) -> Any:
    row = c[0]
    row[1] = 7.0
    return row * 2


def turned(x: Any, c: Any) -> Any:
    columns = c.transpose([1, 0])
    columns[0] = 9.0
    return c * 2


def each_row(x: Any, c: Any) -> Any:
    for row in c:
        row[0] = 1.0
    return c * 2


def assigned(x: Any, c: Any) -> Any:
    paddle.assign(x[0], c[1])
    return c * 2


def unsqueezed(x: Any, c: Any) -> Any:
    view = c.unsqueeze(0).squeeze(0)
    view[0] = 1.0
    return view + x


def flat(x: Any, c: Any) -> Any:
    view = c.flatten()
    view[0] = 1.0
    return view + 1


def as_many_times_as_it_is_long(x: Any, c: Any) -> Any:
    for row in range(c.shape[0]):
        c[row] = x[row] * 2
    return c.sum()


def a_row_of_its_own(x: Any, c: Any) -> Any:
    y = x * 1
    row = y[0]
    row[1] = 7.0
    return y + c


def a_view_from_before(x: Any, c: Any) -> Any:
    y = x * 1
    row = y[0]
    y[0] = 5.0
    return row + c


HIDDEN = [
    a_row_of_it, turned, each_row, assigned, unsqueezed, flat, as_many_times_as_it_is_long, a_row_of_its_own,
    a_view_from_before,
]  # fmt: skip


@pytest.mark.parametrize("verify", ["first", "off"])
@pytest.mark.parametrize("function", HIDDEN)
def test_writes_through_views_are_not_lost(function: Callable[..., Any], verify: Any) -> None:
    """They change nothing when they are done again, so that no comparison with the eager method tells."""
    method = inference(verify=verify)(function)
    with paddle.no_grad():
        for rows in (3, 3, 4, 4, 4):
            x, c = pair(rows)
            own_x, own = x.clone(), c.clone()
            found, expected = method(x, c), function(own_x, own)
            same((found, x, c), (expected, own_x, own))


def test_a_write_that_no_tracer_shows_is_found_by_the_first_call(monkeypatch: pytest.MonkeyPatch) -> None:
    from hybrid_infer.frontends import _paddle_aliases

    monkeypatch.setattr(_paddle_aliases, "_VIEWS", frozenset())
    method = inference()(turned)
    with paddle.no_grad():
        for _ in range(3):
            x, c = pair(3)
            own = c.clone()
            same((method(x, c), c), (turned(x, own), own))
    eagerly("it writes to argument `c` in place, which its tracer does not see", captures=1)


def test_an_argument_that_is_to_require_a_gradient_does() -> None:
    def tracked(x: Any, c: Any) -> Any:
        c.stop_gradient = False
        return x + c

    for method in (inference()(tracked), inference()(tracked)):
        with paddle.no_grad():
            for _ in range(3):
                x, c = pair(3)
                same(method(x, c), x + c)
                assert x.stop_gradient and not c.stop_gradient
                assert method(x, c).stop_gradient
    served(captures=2)  # what the code names of tensors is part of each call


def test_with_gradients_on_it_is_the_eager_method_that_has_an_argument_require_one() -> None:
    def tracked(x: Any, c: Any) -> Any:
        c.stop_gradient = False
        return (x + c).sum()

    method = inference()(tracked)
    for recorded in (False, True, False, True):
        with paddle.set_grad_enabled(recorded):
            x, c = pair(3)
            result = method(x, c)
            assert not c.stop_gradient and result.stop_gradient != recorded
        if recorded:
            result.backward()
            same(c.grad, paddle.ones_like(c.grad))


def test_tensors_that_overlap_are_left_to_eager() -> None:
    method = inference()(a_column)
    with paddle.no_grad():
        for shift in (4, 4, 1, 4):
            whole = grid(9, 4)
            own = whole.clone()
            found, expected = (f(w[:4], w[shift : shift + 4]) for f, w in ((method, whole), (a_column, own)))
            same((found, whole), (expected, own))
    assert counts()["fallbacks"] == {OVERLAP: 1} and counts()["hits"] == 2, counts()


def test_a_tensor_that_overlaps_itself_is_left_to_eager() -> None:
    method = inference()(by_another_name)
    with paddle.no_grad():
        for strides in ([4, 1], [4, 1], [1, 1], [4, 1]):
            x, whole = grid(3, 4), grid(1, 12)
            own = whole.clone()
            mine, eager = (paddle.as_strided(w, [3, 4], strides) for w in (whole, own))
            same((method(x, mine), whole), (by_another_name(x, eager), own))
    assert counts()["fallbacks"] == {OVERLAP: 1} and counts()["hits"] == 2, counts()
