"""The end-to-end check of ``hybrid-infer doctor``, in a process of its own: what it imports may hang or crash."""

from __future__ import annotations

import importlib
import json
import sys
import time
from pathlib import Path
from typing import Any

WIDTH = 16


def check(name: str, folder: Path) -> dict[str, Any]:
    """Capture a tiny layer of a framework, serve it by each engine, load it from disk again, compare with eager."""
    start = time.perf_counter()
    framework: Any = importlib.import_module(name)  # by its name: the frameworks are alike in all that is used here
    imported = time.perf_counter() - start
    from hybrid_infer import _frontends, backends

    frontend = _frontends.imported(name)
    found: dict[str, Any] = {
        "version": str(framework.__version__), "import_seconds": imported, "threads": frontend.threads(), "engines": {},
    }  # fmt: skip
    for engine in backends.ENGINES:
        if not backends.engine(engine).missing():
            try:
                found["engines"][engine] = _serve(framework, engine, folder / engine)
            except Exception as fault:  # whatever it is, it is what the doctor was asked for
                found["engines"][engine] = {"problem": f"{type(fault).__name__}: {fault}"}
    return found


def _serve(framework: Any, engine: str, folder: Path) -> dict[str, Any]:
    import hybrid_infer

    hybrid_infer.reset_stats()
    plain = framework.nn.Linear(WIDTH, WIDTH)
    plain.eval()
    x = framework.ones([2, WIDTH])
    layer = None
    seconds = []
    with framework.no_grad(), hybrid_infer.stance("default"):
        expected = plain(x)
        layer = hybrid_infer.inference(plain, backend=engine, save_model_dir=str(folder), fallback="error")
        for again in (False, True):
            if again:
                hybrid_infer.release(layer)
            start = time.perf_counter()
            result = layer(x)
            result = layer(x)
            seconds.append(time.perf_counter() - start)
    error = float((result - expected).abs().max())
    (counts,) = hybrid_infer.stats().values()
    wrong = [name for name, count in (("captures", 1), ("disk_loads", 1)) if counts[name] != count]
    problem = ""
    if counts["hits"] < 2 or counts["eager_calls"]:
        problem = f"calls were answered eagerly: {', '.join(counts['fallbacks']) or 'no reason is known'}"
    elif wrong:
        problem = f"{wrong[0]} is {counts[wrong[0]]} where 1 was expected: the cache does not keep what is stored"
    elif not error < 1e-4:
        problem = f"its result differs from the eager one by {error:.3g}"
    return {"problem": problem, "error": error, "first_seconds": seconds[0], "from_disk_seconds": seconds[1]}


def main() -> None:
    """Arguments: the framework, a folder to work in, the file for the result."""
    name, folder, target = sys.argv[-3:]
    Path(target).write_text(json.dumps(check(name, Path(folder))), encoding="utf-8")


if __name__ == "__main__":
    main()
