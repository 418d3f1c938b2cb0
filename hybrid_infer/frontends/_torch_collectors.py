"""Where the models of transformers gather hidden states and attentions while one of them is traced."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator
from typing import Any

from hybrid_infer._own_thread import exchanged

_MODULE = "transformers.utils.output_capturing"
_ASKS = "is_torchdynamo_compiling"


@contextlib.contextmanager
def by_context() -> Iterator[None]:
    """Have them gathered in a context variable, which this thread's trace has to itself.

    torch.compile cannot follow one, so transformers takes a global variable wherever torch says that it compiles, and a
    model inside of another one ends the collection of both. The tracer here runs the code as it is.
    """
    module: Any = sys.modules.get(_MODULE)
    with exchanged(*([(module, _ASKS, _no)] if hasattr(module, _ASKS) else [])):
        yield


def _no() -> bool:
    return False
