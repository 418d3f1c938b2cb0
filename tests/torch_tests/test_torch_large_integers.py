"""Integers that float32 or float64 has no digits for, and that int32 or int64 has no place for: as eager has them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from support import counts  # noqa: E402
from torch.nn import functional  # noqa: E402

from hybrid_infer import inference  # noqa: E402

pytestmark = pytest.mark.torch

INT32 = ([1, 2, 3], [16777217, 16777219, 3], [2147483647, 2147483647, 1], [2147483647] * 3, [-7, 46341, 65537])
INT64 = ([1, 2, 3], [2**53 + 1, 2**60 + 1, 7], [-(2**53) - 1, -8, 0], [2**63 - 1, -(2**63), 16777217])

CASES: dict[str, tuple[Any, Callable[[Any], Any]]] = {
    "threshold": (INT64, lambda x: functional.threshold(x, 1.0, 9.0)),
    "threshold of fractions": (INT64, lambda x: functional.threshold(x, 1.7, 9.3)),
    "fmod by a number": (INT64, lambda x: torch.fmod(x, 3)),
    "fmod by a negative one": (INT64, lambda x: x.fmod(-5)),
    "fmod by a tensor": (INT64, lambda x: torch.fmod(x, torch.arange(2, 5))),
    "product of int32": (INT32, lambda x: (x.int().prod(-1), x.int().prod())),
    "powers of a constant": (([1, 2, 3], [30, 31, 5], [32, 100, 0]), lambda x: 2 ** x.int()),
    "powers of int32": (INT32, lambda x: x.int() ** 2),
    "sums of int32": (INT32, lambda x: (x.int().sum(dtype=torch.int32), (x.int() @ x.int().t()).sum(0))),
    "within a half": (INT32, lambda x: torch.isclose(x.int(), x.int() + 1, rtol=0.0, atol=1.5)),
    "the very same": (INT64, lambda x: torch.isclose(x, x.flip(1), rtol=0.0, atol=0.0)),
}


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("backend", [None, "onnxruntime"])
def test_integers_are_exact(name: str, backend: str | None) -> None:
    values, function = CASES[name]
    hot = inference(backend=backend)(function) if backend else inference()(function)
    with torch.no_grad():
        for each in (values[0], *values):
            x = torch.tensor([each])
            torch.testing.assert_close(hot(x), function(x), rtol=0, atol=0)


def test_sums_by_einsum_are_int64() -> None:
    function = lambda x: (torch.einsum("ij->i", x), torch.einsum("ij,ij->ij", x, x))  # noqa: E731
    hot = inference(backend="onnxruntime", verify="off")(function)
    with torch.no_grad():
        for each in INT32:
            x = torch.tensor([each], dtype=torch.int32)
            torch.testing.assert_close(hot(x), function(x), rtol=0, atol=0)
    assert counts()["hits"] > 0 and counts()["eager_calls"] == 0


def test_a_count_beyond_float32_is_of_integers() -> None:
    def function(x: Any) -> Any:
        return x + torch.arange(2**40, 2**40 + 3), x + torch.arange(2**24 + 3, dtype=torch.float32)[-3:]

    hot = inference(backend="onnxruntime", verify="off")(function)
    with torch.no_grad():
        for each in ([1, 2, 3], [4, 5, 6]):
            x = torch.tensor(each)
            torch.testing.assert_close(hot(x), function(x), rtol=0, atol=0)
    assert counts()["eager_calls"] == 0


def test_float_thresholds_are_as_before() -> None:
    hot = inference(backend="onnxruntime")(lambda x: functional.threshold(x, 0.1, 20.0))
    with torch.no_grad():
        for x in (torch.randn(2, 3), torch.tensor([[float("nan"), 0.1, float("inf")]]), torch.randn(4, 3)):
            torch.testing.assert_close(hot(x), functional.threshold(x, 0.1, 20.0), equal_nan=True)
    assert counts()["eager_calls"] == 0


def test_an_integer_among_the_results_does_not_wrap() -> None:
    def function(x: Any, n: int) -> Any:
        return x + 1, n * 2

    hot = inference(backend="onnxruntime")(function)
    x = torch.ones(3)
    with torch.no_grad():
        for n in (5, 6, 7, 2**61, 2**62, 2**63, -(2**62) - 1, 8):
            found, expected = hot(x, n), function(x, n)
            assert found[1] == expected[1] and type(found[1]) is int
            torch.testing.assert_close(found[0], expected[0])


OF_INTEGERS: dict[str, Callable[[Any], Any]] = {
    "rounding": lambda x: (torch.floor(x), torch.ceil(x), torch.round(x), torch.trunc(x)),
    "questions": lambda x: (torch.isnan(x), torch.isfinite(x)),
    "extremes": lambda x: (*torch.aminmax(x), *torch.aminmax(x, dim=1), *torch.aminmax(x, dim=0, keepdim=True)),
    "extremes of all": lambda x: tuple(torch.aminmax(x, keepdim=True)),
    "fmax and fmin": lambda x: (torch.fmax(x, -x), torch.fmin(x, x[:1])),
}


@pytest.mark.parametrize("name", OF_INTEGERS)
@pytest.mark.parametrize("kind", ["int64", "int32", "float32"])
def test_operators_of_which_the_exporter_has_no_form_for_integers(name: str, kind: str) -> None:
    hot = inference(backend="onnxruntime")(OF_INTEGERS[name])
    with torch.no_grad():
        for rows in (3, 3, 4, 1):
            x = (torch.arange(rows * 5).reshape(rows, 5) * 1.3 - 4).to(getattr(torch, kind))
            torch.testing.assert_close(hot(x), OF_INTEGERS[name](x), rtol=0, atol=0)
    assert counts()["eager_calls"] == 0


def test_a_nan_is_left_out_of_two_numbers() -> None:
    hot = inference(backend="onnxruntime")(lambda x, y: (torch.fmax(x, y), torch.fmin(x, y)))
    odd = torch.tensor([1.0, float("nan"), float("inf"), -float("inf"), -2.0])
    with torch.no_grad():
        for _ in range(2):
            x, y = odd[:, None], odd
            torch.testing.assert_close(hot(x, y), (torch.fmax(x, y), torch.fmin(x, y)), equal_nan=True)
    assert counts()["eager_calls"] == 0
