"""Look-ups in tables: an index that torch refuses is refused by a served method too."""

from __future__ import annotations

from typing import Any

import pytest
from support import counts, served

from hybrid_infer import inference

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.torch

TABLE = torch.arange(12.0).reshape(4, 3)


def _layer() -> Any:
    class Tables(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.table = torch.nn.Embedding.from_pretrained(TABLE.clone(), padding_idx=1)

        @inference()
        def embedding(self, i: Any) -> Any:
            return self.table(i) * 2

        @inference()
        def index_select(self, i: Any) -> Any:
            return torch.index_select(self.table.weight, 0, i) + 1

        @inference()
        def gather(self, i: Any) -> Any:
            return torch.gather(self.table.weight, 0, i[:, None].expand(-1, 3)) + 1

        @inference()
        def from_the_end(self, i: Any) -> Any:
            return self.table.weight[i] + 1

    return Tables()


@pytest.mark.parametrize("dtype", [torch.int64, torch.int32])
@pytest.mark.parametrize("name", ["embedding", "index_select", "gather"])
def test_an_index_that_torch_refuses_is_refused(name: str, dtype: Any) -> None:
    layer = _layer()
    method, eager = getattr(layer, name), getattr(type(layer), name).__wrapped__
    if name == "gather" and dtype is torch.int32:
        dtype = torch.int64  # which is all it takes
    with torch.no_grad():
        for places in ([0, 3, 1], [1, 1, 2]):
            given = torch.tensor(places, dtype=dtype)
            assert torch.equal(method(given), eager(layer, given))
        served(captures=1, part=name)
        for wrong in (-1, -4, 4, 99):
            given = torch.tensor([0, wrong, 2], dtype=dtype)
            with pytest.raises((IndexError, RuntimeError)) as refused:
                eager(layer, given)
            with pytest.raises(type(refused.value)) as found:
                method(given)
            assert str(found.value) == str(refused.value)
        given = torch.tensor([3, 0, 0], dtype=dtype)
        assert torch.equal(method(given), eager(layer, given))


def test_an_index_in_brackets_is_taken_from_the_end_as_in_torch() -> None:
    layer = _layer()
    with torch.no_grad():
        for places in ([0, -1, 1], [-4, -2, 3], [2, 2, -1]):
            given = torch.tensor(places)
            assert torch.equal(layer.from_the_end(given), TABLE[given] + 1)
    assert counts("from_the_end")["hits"] > 0


@pytest.mark.parametrize("shape", [(), (1,)])
def test_tables_without_axes(shape: tuple[int, ...]) -> None:
    @inference()
    def picked(x: Any, i: Any) -> Any:
        return torch.gather(x, 0, i) * 2, torch.index_select(x, 0, i) * 3

    with torch.no_grad():
        x, i = torch.tensor(1.5).reshape(shape), torch.tensor(0).reshape(shape)
        for _ in range(2):
            assert all(torch.equal(a, b) for a, b in zip(picked(x, i), picked.__wrapped__(x, i), strict=True))


@pytest.mark.parametrize("mode", ["sum", "mean", "max"])
def test_bags_are_those_of_eager_and_what_torch_refuses_of_them_is_refused(mode: str) -> None:
    class Bags(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.bag = torch.nn.EmbeddingBag(4, 3, mode=mode, padding_idx=3, dtype=torch.float64)

        @inference(backend="onnxruntime", verify="off")
        def forward(self, i: Any, starts: Any) -> Any:
            return self.bag(i, starts)

    layer = Bags().eval()
    with torch.no_grad():
        for first in ([0, 2, 2], [0, 0, 4], [0, 1, 3]):
            i, starts = torch.tensor([1, 3, 3, 2]), torch.tensor(first)
            torch.testing.assert_close(layer(i, starts), layer.bag(i, starts), rtol=1e-14, atol=0)
        served(captures=1)
        for i, first in (([1, 0, -1, 2], [0, 2, 2]), ([1, 0, 4, 2], [0, 2, 2]), ([1, 0, 1, 2], [1, 2, 2]),
                         ([1, 0, 1, 2], [0, 2, 5])):  # fmt: skip
            with pytest.raises(RuntimeError):
                layer(torch.tensor(i), torch.tensor(first))


def test_bags_of_numbers_by_weights_and_of_int32_are_served() -> None:
    def bags(table: Any, i: Any, starts: Any, scale: Any) -> Any:
        return torch.nn.functional.embedding_bag(
            i, table, starts, mode="sum", per_sample_weights=scale, include_last_offset=True
        )

    fast = inference(bags, backend="onnxruntime", verify="off")
    table, scale = torch.randn(4, 3), torch.randn(5)
    with torch.no_grad():
        for ends in ([0, 2, 5], [0, 0, 5], [0, 5, 5], [0, 2, 3]):  # the last of which depends on torch's kernel
            i, starts = torch.tensor([1, 0, 3, 2, 2], dtype=torch.int32), torch.tensor(ends, dtype=torch.int32)
            torch.testing.assert_close(fast(table, i, starts, scale), bags(table, i, starts, scale))
