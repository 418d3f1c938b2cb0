"""Which of our passes a graph goes through for an engine, and what a user who asks for it sees of them."""

from __future__ import annotations

import functools
import os
import re
import tempfile
from collections.abc import Callable
from typing import Any

from hybrid_infer import _keys
from hybrid_infer._log import LOGGER as _log
from hybrid_infer._options import Options
from hybrid_infer._types import Graph

Observe = Callable[[str, bytes], None]


def precision(options: Options) -> str:
    """The element type of float32 arithmetic: what the user asked for, unless he leaves the pass for it out."""
    return "float32" if "precision" in options.delete_pass_lists else options.precision_mode


def passes(options: Options, engine: Any) -> tuple[str, ...]:
    """The names of the passes for `engine`; a precision in which it computes by itself needs none."""
    from hybrid_infer.passes import chosen

    asked = precision(options)
    without = {*options.delete_pass_lists, *(("prune",) if options.skip_prune_program else ())}
    needed = "float32" if engine.native(asked) else asked
    return chosen(optimise=options.switch_ir_optim, without=without, precision=needed)


def rewrite(options: Options, engine: Any, graph: Graph, observe: Observe | None) -> Graph:
    """`graph` as `engine` gets it. Raises EngineError."""
    from hybrid_infer.passes import run

    return run(graph, passes(options, engine), precision=precision(options), observe=observe)


def recorder(options: Options, store: Any, method: str, engine: Any, graph: Graph) -> Observe | None:
    """Writes the graph after each pass into a folder of its own, ``switch_ir_debug`` given: else None.

    ``<store>/debug/<method>/<digest>/<n>-<pass>.onnx``, which upkeep of the store leaves alone; for a method that is
    kept off the disk a temporary folder. A folder that cannot be written costs a warning in the log.
    """
    if not options.switch_ir_debug:
        return None
    root = getattr(store, "root", None)
    base = tempfile.mkdtemp(prefix="hybrid_infer-") if root is None else os.path.join(root, "debug")
    digest = _keys.digest([graph.model, engine.name, passes(options, engine), precision(options)])
    folder = os.path.join(base, re.sub(r"[^\w.-]", "_", method, flags=re.ASCII)[:100], digest)
    count = 0

    def observe(name: str, model: bytes) -> None:
        nonlocal count
        path = os.path.join(folder, f"{count}-{name}.onnx")
        try:
            if not count:
                os.makedirs(folder, mode=0o700, exist_ok=True)
                _log.info("%s: the graph for %s is written after each pass to %s", method, engine.name, folder)
            with open(path, "wb") as file:
                file.write(model)
        except OSError as fault:
            _log.warning("%s: the graph could not be written to %s: %s", method, path, fault.strerror or fault)
        count += 1

    return observe


def announce(options: Options, engine: Any) -> None:
    """Say once that a precision costs accuracy and gains nothing, where the engine has no kernels for it."""
    asked = precision(options)
    if not engine.native(asked):
        _say_rounded(engine.name, asked)


@functools.cache
def _say_rounded(engine: str, asked: str) -> None:
    _log.info(
        "precision_mode=%r: %s has no kernels for it on this processor; it rounds what is multiplied to %s and "
        "computes in float32, which is no faster than float32",
        asked, engine, asked,
    )  # fmt: skip
