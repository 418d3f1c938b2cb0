"""Arguments that are mappings written in Python, as the batches that tokenizers give: `collections.UserDict`."""

from __future__ import annotations

import copy
import functools
import gc
import threading
import weakref
from collections import UserDict
from collections.abc import Callable
from typing import Any, Generic, TypeVar

import pytest
import torch
from forks import forked
from torch_support import counts, same, served

from hybrid_infer import inference

Value = TypeVar("Value")
X = torch.linspace(-1, 1, 8).reshape(2, 4)


class Text:
    """What a library in C knows of a text: it has no state that Python could read."""

    __slots__ = ("__weakref__", "_words")

    def __init__(self, words: list[str]) -> None:
        self._words = words


class Batch(UserDict[str, Value], Generic[Value]):
    """As transformers' BatchEncoding."""

    def __init__(self, data: Any = None, texts: Any = None, count: int | None = None) -> None:
        super().__init__(data)
        self._texts, self._count = texts, count

    def __getattr__(self, name: str) -> Any:
        try:
            return self.data[name]
        except KeyError:
            raise AttributeError(name) from None

    def __getstate__(self) -> Any:
        return {"data": self.data, "texts": self._texts}

    def __setstate__(self, state: Any) -> None:
        self.data, self._texts = state["data"], state["texts"]

    @property
    def is_fast(self) -> bool:
        return self._texts is not None

    def texts(self) -> int:
        return 0 if self._texts is None else len(self._texts)


class Net(torch.nn.Module):
    def __init__(self, does: Callable[..., Any]) -> None:
        super().__init__()
        self.linear, self.does = torch.nn.Linear(4, 3), does

    @inference(backend="onnxruntime")
    def forward(self, batch: Any) -> Any:
        return self.does(self.linear, batch)


def reads(linear: Any, batch: Any) -> Any:
    return {"y": linear(batch["x"]) + batch.bias, "n": len(batch), "has": "x" in batch}


def adds(linear: Any, batch: Any) -> Any:
    batch["y"] = linear(batch["x"])
    return batch


def made(linear: Any, batch: Any) -> Any:
    return type(batch)({"y": linear(batch["x"]), "x": batch["x"]})


def replaces(linear: Any, batch: Any) -> Any:
    batch.data = {name: value * 2 for name, value in batch.items()}
    return linear(batch["x"])


def spread(linear: Any, batch: Any) -> Any:
    return (lambda x, bias: linear(x) + bias)(**batch)


def of_two(linear: Any, batch: Any) -> Any:
    return linear(batch["x"]) * (2 if batch._count == 2 else 1)


def asks_for_texts(linear: Any, batch: Any) -> Any:
    return linear(batch["x"]) * batch.texts()


def asks_for_the_kind(linear: Any, batch: Any) -> Any:
    return linear(batch["x"]) + (1 if batch.is_fast else 0)


def looks_at_all(linear: Any, batch: Any) -> Any:
    return linear(batch["x"]) * len(str(vars(batch).get("_texts")))


def copies(linear: Any, batch: Any) -> Any:
    return copy.copy(batch).texts() + linear(batch["x"])


def compares(linear: Any, batch: Any) -> Any:
    return linear(batch["x"]) + (1 if type(batch) is Batch else 0)


def batch(n: int = 0, texts: int | None = None, **more: Any) -> Batch:
    of = None if texts is None else [Text(["a"]) for _ in range(texts)]
    return Batch({"x": X + n, "bias": torch.ones(3) * n}, of, **more)


def described(value: Any) -> Any:
    if isinstance(value, torch.Tensor):
        return [round(x, 4) for x in value.flatten().tolist()]
    if isinstance(value, (dict, UserDict)):
        beside = getattr(value, "__dict__", {}).keys()
        return type(value).__name__, [(name, described(each)) for name, each in value.items()], beside
    return value


@pytest.mark.parametrize("does", [reads, adds, replaces, spread, of_two])
@pytest.mark.parametrize("texts", [None, "none of the signature's"])
def test_a_mapping_is_served(does: Callable[..., Any], texts: str | None) -> None:
    layer = Net(does).eval()
    with torch.no_grad():
        for n in range(4):
            mine, theirs = (batch(n, None if texts is None else n + 1) for _ in range(2))
            kept = mine.data
            found, expected = layer(mine), does(layer.linear, theirs)
            assert described(found) == described(expected) and described(mine) == described(theirs)
            assert (found is mine) == (expected is theirs)
            assert (mine.data is kept) == (does is not replaces)
    served(captures=1)
    assert counts()["hits"] == 3


@pytest.mark.parametrize("does", [asks_for_texts, asks_for_the_kind, looks_at_all, copies, compares, made])
def test_what_no_signature_tells_of_is_not_ignored(does: Callable[..., Any]) -> None:
    layer = Net(does).eval()
    with torch.no_grad():
        for n in range(4):
            found, expected = (each(batch(n, n + 1)) for each in (layer, functools.partial(does, layer.linear)))
            assert described(found) == described(expected)
    assert counts()["hits"] == 0
    (reason,) = counts()["fallbacks"]
    assert "_texts" in reason and "Batch" in reason, reason


def test_a_new_one_is_a_result() -> None:
    layer = Net(made).eval()
    with torch.no_grad():
        for n in range(3):
            assert described(layer(batch(n))) == described(made(layer.linear, batch(n)))
    served(captures=1)


def test_whether_there_is_such_a_part_counts() -> None:
    layer = Net(asks_for_the_kind).eval()
    with torch.no_grad():
        for n in (0, 1, 2):
            same(layer(batch(n)), asks_for_the_kind(layer.linear, batch(n)))
        assert counts()["hits"] == 2
        same(layer(batch(1, 2)), asks_for_the_kind(layer.linear, batch(1, 2)))
        assert counts()["hits"] == 2


def test_a_number_beside_the_dict_is_part_of_the_signature() -> None:
    layer = Net(of_two).eval()
    with torch.no_grad():
        for n in (1, 2, 1, 2):
            same(layer(batch(n, 3, count=n)), of_two(layer.linear, batch(n, count=n)))
    served(captures=2)
    assert counts()["hits"] == 2


def test_a_plain_one_and_one_of_another_class_are_told_apart() -> None:
    class Other(Batch):
        bias = 5.0

    layer = Net(reads).eval()
    with torch.no_grad():
        for kind in (Batch, Other, Batch, Other):
            given = {"x": X, "bias": torch.ones(3)}
            assert described(layer(kind(given))) == described(reads(layer.linear, kind(given)))


def test_threads_get_their_own_answers() -> None:
    layer, found = Net(adds).eval(), {}

    def work(n: int) -> None:
        with torch.no_grad():
            found[n] = [layer(batch(n, n))["y"] for _ in range(20)]

    with torch.no_grad():
        layer(batch(9, 1))
    threads = [threading.Thread(target=work, args=(n,)) for n in range(4)]
    [each.start() for each in threads]
    [each.join() for each in threads]
    for n, results in found.items():
        for each in results:
            same(each, layer.linear(X + n))


def test_nothing_of_a_batch_is_kept() -> None:
    layer, kept = Net(reads).eval(), []
    with torch.no_grad():
        for n in range(3):
            given = batch(n, 1)
            kept += [weakref.ref(given), weakref.ref(given._texts[0])]
            layer(given)
            del given
    gc.collect()
    assert [each() for each in kept] == [None] * 6


SCRIPT = """
import collections, torch
from hybrid_infer import inference, stats

class Batch(collections.UserDict):
    pass

class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = torch.nn.Linear(4, 3)
    @inference(backend="onnxruntime")
    def forward(self, batch):
        return Batch(y=self.linear(batch["x"]))

layer = Net().eval()
with torch.no_grad():
    for n in range(3):
        x = torch.randn(2, 4)
        given = Batch(x=x)
        given._texts = [object()]
        found = layer(given)
        assert type(found) is Batch and torch.allclose(found["y"], layer.linear(x), atol=1e-6)
found = stats()["__main__.Net.forward"]
print(found["captures"], found["hits"], found["fallbacks"])
"""


def test_the_next_process_captures_nothing() -> None:
    assert forked("torch", SCRIPT) == "1 2 {}"
    assert forked("torch", SCRIPT) == "0 3 {}"
