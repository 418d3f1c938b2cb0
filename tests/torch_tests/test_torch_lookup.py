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
