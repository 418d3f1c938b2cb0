"""Which of our passes a graph goes through for an engine, and what a user who asks for it sees of them."""

from __future__ import annotations

import functools
import re
from collections.abc import Callable
from typing import Any

from hybrid_infer import _keys
from hybrid_infer._log import LOGGER as _log
from hybrid_infer._options import Options
from hybrid_infer._types import Graph

Observe = Callable[[str, bytes], None]


def precision(options: Options, engine: str = "") -> str:
    """The element type of float32 arithmetic: what the user asked for, unless he leaves the pass for it out."""
    if "precision" in options.delete_pass_lists:
        return "float32"
    return options.trt_precision_mode if engine == "tensorrt" else options.precision_mode


def passes(options: Options, engine: Any) -> tuple[str, ...]:
    """The names of the passes for `engine`; a precision in which it computes by itself needs none."""
    from hybrid_infer.passes import chosen

    asked = precision(options, engine.name)
    without = {*options.delete_pass_lists, *(("prune",) if options.skip_prune_program else ())}
    needed = "float32" if engine.native(asked) else asked
    return chosen(optimise=options.switch_ir_optim, without=without, precision=needed)


def rewrite(options: Options, engine: Any, graph: Graph, observe: Observe | None) -> Graph:
    """`graph` as `engine` gets it. Raises EngineError."""
    from hybrid_infer.passes import run

    return run(graph, passes(options, engine), precision=precision(options, engine.name), observe=observe)


def recorder(options: Options, store: Any, method: str, engine: Any, graph: Graph) -> Observe | None:
    """With ``switch_ir_debug``, what writes the graph after each pass beside the entries of `store`; else None.

    ``<n>-<pass>.onnx`` in a folder of its own for each method, graph, engine and choice of passes, which is logged.
    """
    if not options.switch_ir_debug:
        return None
    folder = _folder(options, method, engine, graph)
    count = 0
    written = True

    def observe(name: str, model: bytes) -> None:
        nonlocal count, written
        path = store.write_debug(folder, f"{count}-{name}.onnx", model) if written else None
        written = path is not None
        if path is not None and not count:
            _log.info("%s: the graph for %s is written after each pass to %s", method, engine.name, path.parent)
        count += 1

    return observe


def _folder(options: Options, method: str, engine: Any, graph: Graph) -> tuple[str, str]:
    digest = _keys.digest([graph.model, engine.name, passes(options, engine), precision(options, engine.name)])
    return re.sub(r"[^A-Za-z0-9_.]+", "_", method).strip(".")[:100] or "_", digest


def report(options: Options, store: Any, method: str, engine: Any, graph: Graph, text: str) -> None:
    """With ``switch_ir_debug``, put an engine's own account of its plan beside the graphs that it was made of."""
    if options.switch_ir_debug and text:
        path = store.write_debug(_folder(options, method, engine, graph), f"{engine.name}.json", text.encode())
        if path is not None:
            _log.info("%s: what %s says of its plan is written to %s", method, engine.name, path)


def announce(options: Options, engine: Any) -> None:
    """Say once that a precision costs accuracy and gains nothing, where the engine has no kernels for it."""
    asked = precision(options, engine.name)
    if not engine.native(asked):
        _say_rounded(engine.name, asked)


@functools.cache
def _say_rounded(engine: str, asked: str) -> None:
    _log.info(
        "precision_mode=%r: %s has no kernels for it on this processor; it rounds what is multiplied to %s and "
        "computes in float32, which is no faster than float32",
        asked, engine, asked,
    )  # fmt: skip
