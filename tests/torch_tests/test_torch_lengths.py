"""``len(tensor)``: Python makes a number of a size there, and the size varies from call to call all the same."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch_support import counts, served, twice

from hybrid_infer import inference


def _scattered(x: torch.Tensor) -> torch.Tensor:
    """As torchvision pools regions of several levels."""
    levels = x[:, 0].round().long() % 2
    result = torch.zeros((len(x), x.shape[1]), dtype=x.dtype)
    for level in range(2):
        rows = torch.where(levels == level)[0]
        result[rows] = x[rows] * (level + 2)
    return result


def _of_several(xs: list[torch.Tensor]) -> Any:
    joined = torch.cat(xs)
    return joined.sum(0) / len(joined), len(joined), [len(x) for x in xs]


def _kept(x: torch.Tensor) -> torch.Tensor:
    return x[: len(x) // 2] * 2 if len(x) > 3 else x * 3


VARIES: dict[str, tuple[Callable[..., Any], Callable[[int], Any]]] = {
    "rows that are found": (_scattered, lambda n: torch.arange(n * 3.0).reshape(n, 3)),
    "several": (_of_several, lambda n: [torch.randn(n, 3), torch.randn(2 * n + 1, 3)]),
    "a bound": (_kept, lambda n: torch.randn(n, 3)),
}


@pytest.mark.parametrize("case", VARIES)
def test_a_length_varies(case: str) -> None:
    function, given = VARIES[case]
    hot = inference(backend="onnxruntime")(function)
    for n in (4, 5, 7, 12):
        twice(hot, function, given(n))
    served(captures=2)


def test_a_later_length_goes_another_way() -> None:
    hot = inference(backend="onnxruntime")(_kept)
    for n in (4, 5, 7, 3, 2, 9):
        twice(hot, _kept, torch.randn(n, 3))
    assert counts()["hits"] > 0 and counts()["captures"] <= 4


def _by_text(x: torch.Tensor) -> torch.Tensor:
    return x * {"7 rows": 3.0}.get(f"{len(x)} rows", 2.0)


def _by_number(x: torch.Tensor) -> torch.Tensor:
    return x * {7: 3.0}.get(len(x), 2.0)


def _by_turns(x: torch.Tensor) -> torch.Tensor:
    for i in range(len(x)):
        x = x * (i + 1)
    return x


@pytest.mark.parametrize("function", [_by_text, _by_number, _by_turns])
def test_what_takes_a_length_for_a_number_has_a_model_for_each(function: Any) -> None:
    hot = inference(backend="onnxruntime")(function)
    for n in (4, 5, 7, 4):
        twice(hot, function, torch.randn(n, 3))
    served(captures=3)


def test_len_is_pythons_own_afterwards() -> None:
    before, repr_of_sizes = len, torch.SymInt.__repr__
    test_a_length_varies("a bound")
    assert len is before and torch.SymInt.__repr__ is repr_of_sizes


def _one_by_one(x: torch.Tensor) -> torch.Tensor:
    return torch.stack([x[i] * i for i in range(len(x))])


def test_where_no_length_can_vary_it_is_exported_once(monkeypatch: pytest.MonkeyPatch) -> None:
    exports: list[Any] = []
    export = torch.onnx.export
    monkeypatch.setattr(torch.onnx, "export", lambda *args, **how: exports.append(args) or export(*args, **how))
    hot = inference(backend="onnxruntime")(_one_by_one)
    for n in (4, 5):
        twice(hot, _one_by_one, torch.randn(n, 3))
    assert len(exports) == 2
    served(captures=2)
