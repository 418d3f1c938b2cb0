"""What the tests of every framework share: counts of what happened, and comparison with the eager result."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import hybrid_infer


def counts(part: str = "") -> dict[str, Any]:
    """The counts of the one method that was called since the test began (and whose name contains `part`)."""
    found = {name: value for name, value in hybrid_infer.stats().items() if part in name}
    assert len(found) <= 1, found
    nothing = dict.fromkeys(("captures", "builds", "disk_loads", "bindings", "hits", "eager_calls"), 0)
    return next(iter(found.values()), {**nothing, "fallbacks": {}})


def served(captures: int, bindings: int | None = None, part: str = "") -> None:
    """An engine answered every call, after so many captures (and bindings)."""
    found = counts(part)
    assert found["eager_calls"] == 0 and not found["fallbacks"], found
    assert found["captures"] == captures, found
    if bindings is not None:
        assert found["bindings"] == bindings, found


def eagerly(*words: str, captures: int = 0) -> None:
    """Every answer was the eager method's, for one reason that has these words in it."""
    found = counts()
    assert found["captures"] == captures and found["hits"] == 0 and found["eager_calls"] > 0, found
    assert len(found["fallbacks"]) == 1, found
    reason = next(iter(found["fallbacks"]))
    for word in words:
        assert word in reason, reason


def layer_class(framework: Any) -> Any:
    """``torch.nn.Module`` or ``paddle.nn.Layer``."""
    return framework.nn.Module if framework.__name__ == "torch" else framework.nn.Layer


#: In the place of what a reason says, of methods that an engine answers.
SERVED: tuple[str, ...] = ()


def answered(words: tuple[str, ...], calls: int) -> None:
    """An engine answered after the first of so many calls; or the eager method did, for a reason with these words."""
    found = counts()
    if words is SERVED:
        assert found["eager_calls"] == 0 and found["hits"] > 0, found
        return
    assert found["eager_calls"] == calls and found["captures"] == 0 and found["hits"] == 0, found
    first = next(iter(found["fallbacks"]))
    assert all(word in first for word in words), first


def alike(found: Any, expected: Any, tensor: type, compare: Callable[[Any, Any], None]) -> None:
    """Equal in structure and types; `compare` is called for each pair of tensors."""
    assert type(found) is type(expected), (type(found), type(expected))
    if isinstance(expected, tensor):
        compare(found, expected)
    elif isinstance(expected, dict):
        assert list(found) == list(expected)
        for key in expected:
            alike(found[key], expected[key], tensor, compare)
    elif isinstance(expected, (list, tuple)):
        assert len(found) == len(expected)
        for one, other in zip(found, expected, strict=True):
            alike(one, other, tensor, compare)
    elif hasattr(expected, "__dataclass_fields__"):
        for name in expected.__dataclass_fields__:
            alike(getattr(found, name), getattr(expected, name), tensor, compare)
    else:
        none = found != found and expected != expected  # neither is a number, or a moment
        assert (found == expected or none) and str(found) == str(expected)


def counts_of_what_is_read(
    framework: Any, make: Callable[[], Any], read: Callable[[Any], Any], change: Callable[[Any], Any]
) -> dict[str, Any]:
    """The counts after two calls, a change, and two calls of a layer that holds what `make` gives and uses what `read`
    does; each answer is compared.
    """

    class Layer(layer_class(framework)):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.held = make()

        def forward(self, x: Any) -> Any:
            return x * read(self.held)

    layer, x = Layer(), framework.ones([2, 3])
    hot = hybrid_infer.inference(layer, verify="off")
    with framework.no_grad():
        for _ in range(2):
            assert hot(x).numpy() == pytest.approx(read(layer.held))
        change(layer.held)
        for _ in range(2):
            assert hot(x).numpy() == pytest.approx(read(layer.held))
    return counts()
