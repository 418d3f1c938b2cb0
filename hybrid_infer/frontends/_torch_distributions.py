"""Lazy parameters of `torch.distributions` (`Categorical(logits=x).probs`), in a trace without a gradient mode.

torch computes them where gradients are recorded, whatever the mode around, so that one which is computed under
`no_grad()` can be used outside of it. A graph keeps no such mode. It makes a difference only to what requires a
gradient under `no_grad()`: the arguments and weights themselves, which a distribution hardly ever holds as they are.
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator, Sequence
from typing import Any

from hybrid_infer._own_thread import replaced


@contextlib.contextmanager
def without_modes(traced: Sequence[Any], live: Sequence[Any]) -> Iterator[None]:
    """On this thread, while `traced` stand for `live` tensors."""
    utilities: Any = sys.modules.get("torch.distributions.utils")
    if utilities is None:
        yield
        return
    requiring = [mine for mine, given in zip(traced, live, strict=True) if given.requires_grad]

    def get(plain: Any, lazy: Any, instance: Any, kind: Any = None) -> Any:
        if instance is None or any(each is mine for each in vars(instance).values() for mine in requiring):
            return plain(lazy, instance, kind)
        value = lazy.wrapped(instance)
        setattr(instance, lazy.wrapped.__name__, value)
        return value

    with replaced(utilities.lazy_property, "__get__", get):
        yield
