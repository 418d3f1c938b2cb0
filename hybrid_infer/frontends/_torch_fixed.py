"""Which line of the program fixes a size that was to vary: torch's tracer does so inside of operators, too."""

from __future__ import annotations

import contextlib
import re
import sys
import threading
from collections.abc import Collection, Iterator
from typing import Any

import torch
from torch.fx.experimental.symbolic_shapes import ShapeEnv

from hybrid_infer._own_thread import exchanged
from hybrid_infer.frontends import _places

_SIZE = re.compile(r"tensors\W+(\d+)\W*\.size\(\)\[(\d+)\]")

#: By the symbol of a size: ``file:line``.
Lines = dict[Any, str]


@contextlib.contextmanager
def noted() -> Iterator[Lines]:
    """While a method is traced on this thread, note where symbols of sizes become numbers."""
    lines: Lines = {}
    replace, thread = ShapeEnv._set_replacement, threading.get_ident()

    def noting(environment: Any, symbol: Any, value: Any, *rest: Any, **named: Any) -> Any:
        if threading.get_ident() == thread and getattr(value, "is_Integer", False):
            lines.setdefault(symbol, _places.of_frame(sys._getframe(1), torch))
        return replace(environment, symbol, value, *rest, **named)

    with exchanged((ShapeEnv, "_set_replacement", noting)):
        yield lines


def of_sizes(
    lines: Lines, values: Collection[Any], fixed: Collection[tuple[int, int]]
) -> dict[tuple[int, int], str]:  # fmt: skip
    """The lines of each (tensor, axis), as far as they are known; `values` stand for the tensors of the call."""
    environment = next((v.fake_mode.shape_env for v in values if hasattr(v, "fake_mode")), None)
    found = {}
    for symbol, sources in getattr(environment, "var_to_sources", {}).items():
        for source in sources if lines.get(symbol) else ():
            named = _SIZE.search(str(source.name() if callable(source.name) else source.name))
            place = (-1, -1) if named is None else (int(named[1]), int(named[2]))
            if place in fixed:
                found[place] = lines[symbol]
    return found
