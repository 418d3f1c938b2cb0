"""An engine tried in a process of its own before this one relies on it: if it crashes there, no harm is done here.

The process imports no framework: it gets the graph as the engine would, the arguments of the call as arrays, and zeros
for weights. Whether the engine refuses the graph or is wrong shows here soon enough: what is asked is that it lives.
"""

from __future__ import annotations

import json
import logging
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from hybrid_infer import _fork_safe
from hybrid_infer._errors import EngineError, PassingFault
from hybrid_infer._request import Request
from hybrid_infer._types import EngineOptions, Graph, carrier
from hybrid_infer._version import Version, graph_of, names_of
from hybrid_infer.capture import _forked

_log = logging.getLogger("hybrid_infer")

_START = "import sys; sys.path.insert(0, sys.argv[1]); from hybrid_infer.checks import _tryout; _tryout.serve()"
_READY, _DONE = "ready\n", "done\n"
_FILES = ("meta.json", "graph.onnx", "arguments.npz")


class Tryouts:
    """One process for all that is tried; another one after each that an engine has ended. `close` it."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[str] | None = None
        self._lock = _fork_safe.Lock()
        self._closed = self._impossible = False

    def __call__(
        self, request: Request, version: Version, engine: Any, graph: Graph, options: EngineOptions
    ) -> None:
        """Raises EngineError where the process ended while the engine built the graph and ran it."""
        if self._impossible or options.live or getattr(engine, "in_place", False):
            return
        if self._closed:
            raise PassingFault(engine.name, "the time to try it was up")
        with self._lock, tempfile.TemporaryDirectory(prefix="hybrid_infer-tryout-") as folder:
            _write(Path(folder), request, version, engine, graph, options)
            code = self._ask(folder)
        if code is None:
            return
        reason = f"the process in which it was tried {_forked.ended(code)}"
        if self._closed or code == -9:  # by us, or for want of memory
            raise PassingFault(engine.name, reason)
        raise EngineError(engine.name, reason)

    def _ask(self, folder: str) -> int | None:
        """The exit status of the process; None where it lives, or where there is none to be had."""
        process = self._begun()
        if process is None:
            return None
        assert process.stdin is not None and process.stdout is not None
        try:
            process.stdin.write(f"{folder}\n")
            process.stdin.flush()
            if process.stdout.readline() == _DONE:
                return None
        except OSError as fault:
            _log.debug("the process in which engines are tried has ended: %s", fault)
        self._end()
        return process.returncode

    def _begun(self) -> subprocess.Popen[str] | None:
        if self._process is None and not self._closed:
            here = str(Path(__file__).resolve().parents[2])
            try:
                self._process = process = subprocess.Popen(
                    [sys.executable, "-c", _START, here],
                    stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
                )  # fmt: skip
                assert process.stdout is not None
                self._impossible = process.stdout.readline() != _READY
            except OSError as fault:
                _log.debug("engines are tried in this process: %s", fault)
                self._impossible = True
            if self._impossible:
                self._end()
        return self._process

    def _end(self) -> None:
        process, self._process = self._process, None
        if process is not None:
            for pipe in (process.stdin, process.stdout):
                try:
                    if pipe is not None:
                        pipe.close()
                except OSError as fault:  # what could not be written
                    _log.debug("%s", fault)
            process.wait()

    def close(self) -> None:
        """End the process, whatever it does."""
        self._closed = True
        process = self._process
        if process is not None:
            process.kill()
        with self._lock:
            self._end()


def _write(
    folder: Path, request: Request, version: Version, engine: Any, graph: Graph, options: EngineOptions
) -> None:
    import numpy as np

    meta = {
        "engine": engine.name,
        "options": {"threads": options.threads, "optimise": options.optimise, "precision": options.precision},
        "weights": [[w.dtype, list(w.shape)] for w in version.weights],
        "graph": names_of(graph),
    }
    layout, frontend = request.layout, request.frontend
    arrays = [
        frontend.exporter(spec.dtype, carrier(spec.dtype))(tensor)
        for spec, tensor in zip(version.tensors, layout.tensors, strict=True)
    ]
    free = [given for known, given in zip(version.ints, layout.ints, strict=True) if known is None]
    arrays += [np.asarray(number, dtype=np.int64) for number in free]
    groups = [*request.subject.census.weights().values()]
    state = [(version.weights[i].dtype, groups[i][0].tensor) for i in version.state]
    arrays += [frontend.exporter(dtype, carrier(dtype))(tensor) for dtype, tensor in state]
    (folder / _FILES[0]).write_text(json.dumps(meta), encoding="utf-8")
    (folder / _FILES[1]).write_bytes(graph.model)
    np.savez(folder / _FILES[2], *arrays)


# In the other process


def serve() -> None:
    """Try what the folders hold whose names come line by line, and say so after each."""
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what engines say themselves
    answers.write(_READY)
    answers.flush()
    for line in sys.stdin:
        try:
            _run(Path(line.rstrip("\n")))
        except Exception as fault:
            _log.debug("refused: %s", fault)
        answers.write(_DONE)
        answers.flush()


def _run(folder: Path) -> None:
    import numpy as np

    from hybrid_infer import backends

    meta = json.loads((folder / _FILES[0]).read_text(encoding="utf-8"))
    graph = graph_of(meta["graph"], (folder / _FILES[1]).read_bytes())
    engine, options = backends.engine(meta["engine"]), EngineOptions(**meta["options"])
    weights = [
        None if name is None else np.zeros(shape, engine.wire(dtype))
        for name, (dtype, shape) in zip(graph.weights, meta["weights"], strict=True)
    ]
    program = engine.load(graph, weights, options, engine.prepare(graph, options))
    with np.load(folder / _FILES[2], allow_pickle=False) as file:
        given = [file[name] for name in file.files]
    wires = program.input_dtypes[-len(given) :] if given else ()
    program.run([array.astype(wire, copy=False) for array, wire in zip(given, wires, strict=True)])
