"""What code may ask of a tensor, or of Paddle, beside what a signature holds: each answer makes a version of its own.

A trace gives the answers of the live tensors (`_paddle_watch`); where gradients are recorded, nothing is traced (see
`hybrid_infer.capture._tracing`). Where the answers differ all the same, the comparison with the eager method tells,
and calls with these stay eager.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Set
from typing import Any

import paddle

_LAYOUT = frozenset({"as_strided", "get_strides", "is_contiguous", "offset", "stride", "strides"})
#: The names by which code asks what a tensor has to do with gradients, or acts on it.
HISTORY = frozenset({"grad", "grad_fn", "is_leaf", "register_hook", "requires_grad", "stop_gradient", "trainable"})
_CLASS = frozenset({"EagerParamBase", "Parameter", "is_parameter"})
#: Settings of the process, by the name under which code asks for them.
_SETTINGS: dict[str, Callable[[], Hashable]] = {
    "get_device": paddle.get_device,
    "get_flags": lambda: _flags(),
}


#: The names by which code asks for any of it.
NAMES = frozenset(_SETTINGS).union(_LAYOUT, HISTORY, _CLASS, {"is_grad_enabled"})


def settings(names: Set[str]) -> Callable[[], Hashable] | None:
    """The settings that code with these names may ask for; None if it asks for none."""
    asked = [read for name, read in _SETTINGS.items() if name in names]
    return (lambda: tuple(read() for read in asked)) if asked else None


def facts(names: Set[str]) -> Callable[[Any], Hashable] | None:
    """What code with these names may ask of a tensor; None if nothing."""
    asked: list[Callable[[Any], Hashable]] = []
    if not _LAYOUT.isdisjoint(names):
        asked.append(lambda t: t.is_contiguous() or tuple(t.strides))
    if not HISTORY.isdisjoint(names):
        asked.append(lambda t: t.stop_gradient)
    if not {"grad_fn", "is_leaf"}.isdisjoint(names):
        asked.append(lambda t: t.is_leaf)
    if "grad" in names:
        asked.append(lambda t: t.grad is not None)
    if not _CLASS.isdisjoint(names):
        asked.append(lambda t: type(t).__name__)
    return (lambda tensor: tuple(ask(tensor) for ask in asked)) if asked else None


def _flags() -> Hashable:
    known = paddle.base.core.globals()
    return tuple((name, str(known[name])) for name in known.keys() if known.is_public(name))  # noqa: SIM118
