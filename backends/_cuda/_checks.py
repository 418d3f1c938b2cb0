"""What a graph says of the checks that its method makes of values, on a GPU: the host waits for it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from hybrid_infer._errors import CheckFailed, EngineError
from hybrid_infer._types import Memory
from hybrid_infer.backends._program import FAILED


def possible(engine: str, memory: Memory) -> None:
    """To be called before a run. Raises EngineError where the program captures a CUDA graph, in which nothing waits."""
    if memory.capturing():
        raise EngineError(engine, "it checks values, for which no host can wait while a CUDA graph is captured")


def hold(engine: str, results: Sequence[Any]) -> None:
    """To be called behind it. Raises CheckFailed where the last of the results says that a check failed."""
    if not bool(results[-1]):
        raise CheckFailed(engine, FAILED)
