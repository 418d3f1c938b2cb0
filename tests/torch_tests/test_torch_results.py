"""What a decorated method returns is what the eager method returns: structure, identity, types, sizes."""

from __future__ import annotations

from typing import Any, NamedTuple

import pytest
import torch
from torch_support import eagerly, same, served, twice

from hybrid_infer import inference

X = torch.linspace(-1, 1, 8).reshape(2, 4)


class Result(NamedTuple):
    value: torch.Tensor
    sizes: Any


def _everything(x: torch.Tensor, keep: torch.Tensor, label: str) -> Any:
    y = x * 2
    return {
        "pair": (y, [y, x + 1]),
        "shape": y.shape,
        "sizes": [x.shape[0], x.shape[1] * 2, x.dim(), x.size(0) + 1],
        "kept": keep,
        "plain": (None, True, 3, 2.5, label, x.dtype, x.device),
        "named": Result(y.sum(), {1: y.mean(0), None: ()}),
        7: y.argmax(-1),
    }


def test_a_mixed_result_has_the_eager_structure_at_every_size() -> None:
    hot = inference(fallback="error")(_everything)
    for rows in (2, 3, 5, 6):
        x, keep = torch.randn(rows, 4), torch.randn(2)
        found = twice(hot, _everything, x, keep, "l")
        assert found["kept"] is keep
        assert found["pair"][0] is found["pair"][1][0]
        assert type(found["shape"]) is torch.Size and found["shape"] == (rows, 4)
        assert [type(n) for n in found["sizes"]] == [int] * 4
        assert found["named"].value.shape == ()
    served(captures=2)


class Held(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.table = torch.nn.Parameter(torch.ones(4))

    @inference(fallback="error")
    def forward(self, x: torch.Tensor) -> Any:
        return x + self.table, self.table, x


def test_a_weight_and_an_input_come_back_as_those_objects() -> None:
    layer = Held()
    with torch.no_grad():
        for _ in range(2):
            total, table, x = layer(X)
            assert table is layer.table and x is X
            same(total, X + layer.table.detach())
    served(captures=1)


def test_a_result_that_is_nothing_or_a_constant() -> None:
    def checks(x: torch.Tensor) -> Any:
        return None

    def length(x: torch.Tensor) -> Any:
        return len(x)

    assert inference()(checks)(X) is None
    twice(inference()(length), length, X)


def test_the_callers_results_are_never_written_again() -> None:
    hot = inference(fallback="error")(lambda x: x * 2)
    with torch.no_grad():
        hot(X)
        first = hot(X)
        copied = first.clone()
        hot(X + 5)
        same(first, copied)
        first.add_(1)
        same(hot(X), copied)


@pytest.mark.parametrize(
    "dtype",
    [torch.bool, torch.uint8, torch.int8, torch.int32, torch.int64, torch.float16, torch.bfloat16, torch.float64],
)
def test_element_types(dtype: torch.dtype) -> None:
    def rearrange(x: torch.Tensor) -> Any:
        return torch.cat([x, x.flip(0)]), x == x[0], x.float() * 0.5

    x = torch.tensor([[0, 1, 1], [1, 0, 1]]).to(dtype)
    twice(inference(fallback="error")(rearrange), rearrange, x)
    served(captures=1)


def test_half_precision_layers_stay_half() -> None:
    def block(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        return torch.softmax(x @ w, -1)

    for dtype in (torch.bfloat16, torch.float16):
        hot = inference(fallback="error")(block)
        with torch.no_grad():
            x, w = X.to(dtype), torch.eye(4, dtype=dtype)
            for _ in range(2):
                same(hot(x, w), block(x, w), 2e-2)
    served(captures=2)


def test_empty_and_zero_dimensional_tensors() -> None:
    def both(x: torch.Tensor, s: torch.Tensor) -> Any:
        return x * s, x.sum(), s + 1

    hot = inference(fallback="error")(both)
    twice(hot, both, torch.zeros(0, 4), torch.tensor(2.0))
    twice(hot, both, torch.ones(3, 4), torch.tensor(3.0))
    twice(hot, both, torch.zeros(0, 4), torch.tensor(4.0))
    served(captures=2)


def test_strided_expanded_and_shared_inputs() -> None:
    def mix(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        return a @ b

    hot = inference(fallback="error")(mix)
    square = torch.arange(16.0).reshape(4, 4)
    twice(hot, mix, square, square)
    twice(hot, mix, square.T, square)
    twice(hot, mix, square[::1, :].T, torch.ones(1).expand(4, 4))
    twice(hot, mix, torch.arange(64.0).reshape(8, 8)[::2, ::2], square)
    served(captures=2)  # `a is b` and not: code may ask


def test_a_view_of_an_argument_is_left_to_eager() -> None:
    hot = inference()(lambda x: x.reshape(4, 2))
    with torch.no_grad():
        for _ in range(2):
            found = hot(X)
            assert found.data_ptr() == X.data_ptr()
    eagerly("view of an argument", captures=1)


def test_a_tensor_subclass_is_left_to_eager() -> None:
    class Mine(torch.Tensor):
        pass

    hot = inference()(lambda x: x + 1)
    found = hot(X.as_subclass(Mine))
    assert type(found) is Mine
    eagerly("Mine")


def test_a_sparse_tensor_is_left_to_eager() -> None:
    hot = inference()(lambda x, s: torch.sparse.mm(s, x))
    sparse = torch.eye(2).to_sparse()
    same(hot(X, sparse), X)
    eagerly("sparse")


def test_an_argument_that_comes_back_does_so_in_eagers_layout() -> None:
    def both(x: torch.Tensor) -> Any:
        return x.contiguous(), x * 2

    hot = inference(fallback="error")(both)
    assert twice(hot, both, X)[0] is X
    served(captures=1)
    turned = torch.arange(8.0).reshape(4, 2).T
    found = twice(hot, both, turned)[0]
    assert found is not turned and found.is_contiguous()
