"""An engine that takes nothing: it stands for any engine that refuses, wherever that has to be tested."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NoReturn

from hybrid_infer._errors import EngineError
from hybrid_infer._types import EngineOptions, Graph


class NullEngine:
    """Can be hosted everywhere and refuses every graph, with a reason."""

    name = "null"
    reservation = ""
    reason = "the null engine takes no graph"

    def missing(self) -> str:
        return ""

    def version(self) -> str:
        return "0"

    def plan_key(self, options: EngineOptions) -> str:
        return f"null-{options.device}"

    def native(self, precision: str) -> bool:
        return True

    def doubts(self, files: Mapping[str, bytes]) -> str:
        return ""

    def wire(self, dtype: str) -> str:
        return dtype

    def prepare(self, graph: Graph, options: EngineOptions) -> NoReturn:
        raise EngineError(self.name, self.reason)

    def load(
        self,
        graph: Graph,
        weights: Sequence[Any],
        options: EngineOptions,
        files: Mapping[str, bytes] | None = None,
    ) -> NoReturn:
        raise EngineError(self.name, self.reason)


ENGINE = NullEngine()
