"""Sub-commands of ``hybrid-infer`` beside those of the cache: ``doctor``, ``run``, ``warm``."""

from __future__ import annotations

import argparse
import contextlib
import functools
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from hybrid_infer import _inventory, _options

Add = Callable[..., argparse.ArgumentParser]
Show = Callable[[list[dict[str, Any]]], None]


def register(add: Add, rooms: Any, show: Show) -> None:
    """Add the sub-commands. `add` makes one among `rooms`, with the options that all have; `show` prints models."""
    add(
        "doctor", _doctor, "Tell what this machine has for the library, and whether it works",
        "A tiny layer is captured, served and compared in a temporary cache. Status 1 where something keeps the "
        "library from serving.", rooms,
    )  # fmt: skip
    run = add(
        "run", _run, "Run a script that was written for paddle.incubate.jit.inference, unchanged",
        "What it decorates is served by this library. The status is that of the script.", rooms,
    )  # fmt: skip
    warm = add(
        "warm", functools.partial(_warm, show), "Run a script once to fill the cache, and print what was stored",
        "As `run` does; what the script prints goes to standard error under --json.", rooms,
    )  # fmt: skip
    for parser in (run, warm):
        parser.set_defaults(as_program=True)
        parser.add_argument("-m", dest="module", action="store_true", help="SCRIPT is the name of a module")
        parser.add_argument("script", metavar="SCRIPT", help="a Python file")
        parser.add_argument("arguments", metavar="...", nargs=argparse.REMAINDER, help="what the script is given")


def _doctor(given: argparse.Namespace) -> int:
    from hybrid_infer import _doctor

    found = _doctor.examine(given.cache_dir)
    sys.stdout.write((json.dumps(found, indent=2) if given.json else _doctor.text(found)) + "\n")
    return 1 if found["problems"] else 0


def _run(given: argparse.Namespace) -> int:
    from hybrid_infer import _script

    if given.cache_dir:
        _options.use_store_root(given.cache_dir)
    try:
        _script.run(given.script, given.arguments, module=given.module)
    except SystemExit as end:
        return _script.status(end)
    return 0


def _warm(show: Show, given: argparse.Namespace) -> int:
    from hybrid_infer import _background, stats
    from hybrid_infer.cache import Store

    if given.cache_dir:
        _options.use_store_root(given.cache_dir)
    root = Path(_options.store_root(_options.Options()))
    before = {entry.version for entry in Store(root).entries()}
    with contextlib.redirect_stdout(sys.stderr) if given.json else contextlib.nullcontext():
        status = _run(given)
        _background.wait()
    store = Store(root)
    found = [_inventory.summary(store, entry) for entry in store.entries()]
    new = [each for each in found if each["key"] not in before]
    reasons = {name: counts["fallbacks"] for name, counts in stats().items() if counts["fallbacks"]}
    if given.json:
        sys.stdout.write(json.dumps({"path": str(root), "status": status, "stored": new, "eager": reasons}) + "\n")
        return status
    if new:
        show(new)
    for name, each in reasons.items():
        for reason, calls in each.items():
            sys.stdout.write(f"eagerly: {name}: {reason} ({calls} calls)\n")
    sys.stdout.write(f"{len(new)} stored in {root}, where {len(before)} were before\n")
    return status
