"""Past ``max_versions``, calls that differ in constants alone are answered without a look into code or store."""

from __future__ import annotations

import contextlib
from typing import Any

import numpy as np
import pytest
from support import counts, layer_class

from hybrid_infer import _crowds, _miss, _resolve, inference


def layer(framework: Any, **options: Any) -> Any:
    class Scaled(layer_class(framework)):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.weight = self.create_parameter([3]) if framework.__name__ == "paddle" else framework.nn.Parameter(
                framework.zeros(3)
            )
            self.bias = 0.0

        @inference(**options)
        def forward(self, x: Any, factor: float, name: str = "") -> Any:
            return self.weight * 0 + x * factor + self.bias

    return Scaled().eval() if framework.__name__ == "torch" else Scaled()


@pytest.fixture
def looked(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """Of which calls the code was looked at."""
    found: list[Any] = []
    subject = _miss.subject_of
    monkeypatch.setattr(_miss, "subject_of", lambda *given: found.append(given) or subject(*given))
    return found


def right(framework: Any, hot: Any, size: int, factor: float, name: str = "") -> None:
    found = hot(framework.ones([size, 3]), factor, name)
    np.testing.assert_allclose(found.detach().numpy(), np.full([size, 3], factor + hot.bias), rtol=1e-6)


def test_a_value_that_is_another_at_each_call(framework: Any, looked: list[Any]) -> None:
    hot = layer(framework, max_versions=2)
    for factor in (1.5, 2.5, 3.5):
        right(framework, hot, 2, factor)
    before = len(looked)
    for n in range(20):
        right(framework, hot, 2, 4.5 + n, f"request {n}" if n > 10 else "")
    assert len(looked) <= before + 1  # a name beside it is another kind of calls
    found = counts()
    assert found["captures"] == 2 and found["eager_calls"] == 21, found
    for factor in (1.5, 2.5):  # which are served as before
        right(framework, hot, 2, factor)
    assert counts()["eager_calls"] == 21


def test_lengths_of_a_list_are_not_each_captured_in_vain(framework: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """As of the images that a detector is given."""
    tried: list[Any] = []
    capture = _resolve._capture
    monkeypatch.setattr(_resolve, "_capture", lambda *given: tried.append(given) or capture(*given))

    class Kept(layer_class(framework)):  # type: ignore[misc]
        @inference(backend="onnxruntime")
        def forward(self, found: list[Any], more: Any = None) -> Any:
            return [each + framework.rand([1]) for each in found]

    for at_first, others in ((3, 3), (1, 0)):  # another instance, as in the next process, finds out by one
        hot, before = Kept(), len(tried)
        for length in (1, 2, 3, 4, 5, 4, 7) if others else (8, 9, 8, 12):
            given = [framework.ones([2 + n]) for n in range(length)]
            assert [each.shape for each in hot(given)] == [each.shape for each in given]
        assert len(tried) - before == at_first
    with contextlib.suppress(TypeError):
        hot([framework.ones([2])], framework.ones([2]))  # of another structure
    assert len(tried) == 5


def test_arguments_are_no_list_of_any_length(framework: Any) -> None:
    """One more may be what a graph could not do without."""

    class Summed(layer_class(framework)):  # type: ignore[misc]
        @inference(backend="onnxruntime")
        def forward(self, *given: Any) -> Any:
            return sum(given) if len(given) > 3 else given[0] + framework.rand([2, 3])

    class Optional(layer_class(framework)):  # type: ignore[misc]
        @inference(backend="onnxruntime")
        def forward(self, x: Any, mask: Any = None, types: Any = None, places: Any = None, more: Any = None) -> Any:
            given = [each for each in (x, mask, types, places, more) if each is not None]
            return sum(given) if places is not None else x + framework.rand([2, 3])

    for kind in (Summed, Optional):
        hot = kind()
        for count in (1, 2, 3, 4, 4):
            hot(*(framework.ones([2, 3]) for _ in range(count)))
        assert counts(kind.__name__)["hits"] == 1


def test_another_size_or_state_is_looked_into(framework: Any, looked: list[Any]) -> None:
    hot = layer(framework, max_versions=2)
    for factor in (1.5, 2.5, 3.5, 4.5):
        right(framework, hot, 2, factor)
    before = len(looked)
    right(framework, hot, 5, 1.5)  # a dimension that varies is no constant
    assert len(looked) > before and counts()["captures"] == 3
    before = len(looked)
    hot.bias = 10.0
    right(framework, hot, 2, 5.5)
    assert len(looked) > before


def test_what_another_instance_has_captured_serves_this_one(framework: Any) -> None:
    hot = layer(framework, max_versions=2)
    other = type(hot)().eval() if framework.__name__ == "torch" else type(hot)()
    for factor in (1.5, 2.5, 3.5, 4.5):
        right(framework, hot, 2, factor)
    for factor in (4.5, 5.5):
        right(framework, other, 2, factor)
    assert counts()["captures"] == 4
    before = counts()["eager_calls"]
    for _ in range(2):
        right(framework, hot, 2, 5.5)
    assert counts()["eager_calls"] == before


def test_after_a_while_one_is_looked_up_again(
    framework: Any, looked: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    waits: list[int] = []
    monkeypatch.setattr(_crowds, "minutes", lambda times: waits.append(times) or (lambda: False))
    hot = layer(framework, max_versions=1)
    for n in range(4):
        right(framework, hot, 2, 1.5 + n)
    assert waits == [0, 1, 2]


def test_calls_are_alike_but_for_their_constants() -> None:
    tree = ["u", "builtins:tuple", [["t"], ["c", "float", "0x1p0"], ["d", "builtins:dict", [["str", "a"]], [["i"]]]]]
    other = ["u", "builtins:tuple", [["t"], ["c", "float", "0x1p1"], ["d", "builtins:dict", [["str", "a"]], [["i"]]]]]
    key = ["u", "builtins:tuple", [["t"], ["c", "float", "0x1p1"], ["d", "builtins:dict", [["str", "b"]], [["i"]]]]]
    kind = ["u", "builtins:tuple", [["t"], ["c", "str", "1"], ["d", "builtins:dict", [["str", "a"]], [["i"]]]]]
    assert _crowds.without_values(tree) == _crowds.without_values(other)
    assert len({_crowds.without_values(each) for each in (tree, key, kind)}) == 3


@pytest.mark.torch
@pytest.mark.parametrize("branch", [False, True])
def test_a_value_that_is_another_at_each_call_of_what_cannot_be_captured(captures: list[str], branch: bool) -> None:
    """Each would be traced in vain, for many times what the eager method takes."""
    torch = pytest.importorskip("torch")

    class Opaque(torch.nn.Module):  # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.linear = torch.nn.Linear(3, 3)

        @inference
        def forward(self, x: Any, factor: float) -> Any:
            if branch:
                assert x.isfinite().all()
            return torch.from_numpy((self.linear(x) * factor).numpy())

    hot = Opaque().eval()
    x = torch.ones(2, 3)
    with torch.no_grad():
        for n in range(12):
            torch.testing.assert_close(hot(x, n + 0.5), hot.linear(x) * (n + 0.5))
    assert counts()["eager_calls"] == 12
    assert len(captures) <= 4, captures


@pytest.mark.torch
def test_some_values_that_cannot_be_captured() -> None:
    """Others are, as before."""
    torch = pytest.importorskip("torch")

    class Picky(torch.nn.Module):  # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.linear = torch.nn.Linear(3, 3)

        @inference
        def forward(self, x: Any, mode: str) -> Any:
            y = self.linear(x)
            return y * 2 if mode.startswith("a") else torch.from_numpy(y.numpy() + 1)

    hot = Picky().eval()
    with torch.no_grad():
        for mode in ("a0", "b1", "b2", "b3", "b4", "a1", "a2", "a1", "a2"):
            hot(torch.ones(2, 3), mode)
    assert counts()["captures"] == 3 and counts()["hits"] >= 2, counts()
