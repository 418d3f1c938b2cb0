"""Which operators the exporters write for the models of the tests: each is one that the native engine is tested with.

What a test captures is looked at as an engine gets it. An operator that ONNX's own tests do not cover, and that is not
excluded with its reason, fails the test that brought it.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path
from typing import Any

NATIVE = Path(__file__).parent / "native"


@lru_cache(maxsize=1)
def covered() -> frozenset[str]:
    lines = (NATIVE / "covered_operators.txt").read_text().splitlines()
    return frozenset(name for line in lines if not line.startswith("#") for name in line.split())


@lru_cache(maxsize=1)
def excluded() -> dict[str, str]:
    """Operators that are not held to ONNX's tests, with the reasons."""
    lines = (NATIVE / "excluded_operators.txt").read_text().splitlines()
    pairs = (line.partition(" | ") for line in lines if line and not line.startswith("#"))
    return {name: reason for name, _, reason in pairs}


def operators(model: bytes) -> set[str]:
    """The operators of a serialised onnx.ModelProto, bodies of loops, branches and functions included."""
    import onnx

    made = onnx.ModelProto.FromString(model)
    own = {(function.domain, function.name) for function in made.functions}
    nodes = [*made.graph.node, *(node for function in made.functions for node in function.node)]
    return {
        f"{node.domain}.{node.op_type}" if node.domain not in ("", "ai.onnx") else node.op_type
        for node in _all(nodes) if (node.domain, node.op_type) not in own
    }  # fmt: skip


def _all(nodes: Any) -> Iterator[Any]:
    for node in nodes:
        yield node
        for attribute in node.attribute:
            for inner in (attribute.g, *attribute.graphs) if attribute.HasField("g") else attribute.graphs:
                yield from _all(inner.node)


class Recorder:
    """What was captured since it was last asked."""

    def __init__(self) -> None:
        self._models: dict[bytes, None] = {}

    def start(self) -> None:
        """Note every graph of this process that an engine is to be given."""
        from hybrid_infer import _rewriting

        rewrite = _rewriting.rewrite

        def noted(options: Any, engine: Any, graph: Any, observe: Any) -> Any:
            self._models[graph.model] = None
            return rewrite(options, engine, graph, observe)

        _rewriting.rewrite = noted

    def unknown(self) -> set[str]:
        """Operators of what was noted that are neither covered nor excluded."""
        models, self._models = self._models, {}
        return {each for model in models for each in operators(model)} - covered() - set(excluded())


RECORDER = Recorder()
