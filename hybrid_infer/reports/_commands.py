"""Sub-commands of ``hybrid-infer`` beside those of the cache: ``doctor``, ``run``, ``warm``, ``suggest``."""

from __future__ import annotations

import argparse
import contextlib
import functools
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from hybrid_infer import _options
from hybrid_infer._errors import HybridInferError
from hybrid_infer.reports import _inventory
from hybrid_infer.reports._amounts import count

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
    suggest = add(
        "suggest", _suggest, "Run a script once, eagerly, and tell what in it is worth decorating",
        "Layers and methods are timed; the largest are captured and measured with each engine. The script is not "
        "changed, and is given its arguments; what it prints goes to standard error under --json.", rooms,
    )  # fmt: skip
    suggest.add_argument("--output", metavar="FILE", type=Path, help="draw the time as a tree: .html, or .png")
    limit = "for trying (default: 120)"
    suggest.add_argument("--time-limit", metavar="SECONDS", type=_seconds, default=120.0, help=limit)
    for parser in (run, warm, suggest):
        parser.set_defaults(as_program=True)
        parser.add_argument("-m", dest="module", action="store_true", help="SCRIPT is the name of a module")
        parser.add_argument("script", metavar="SCRIPT", help="a Python file")
        parser.add_argument("arguments", metavar="...", nargs=argparse.REMAINDER, help="what the script is given")


def _seconds(text: str) -> float:
    try:
        seconds = float(text)
    except ValueError:
        seconds = -1.0
    if not seconds >= 0:
        raise argparse.ArgumentTypeError(f"{text!r} is no number of seconds")
    return seconds


def _doctor(given: argparse.Namespace) -> int:
    from hybrid_infer import _progress
    from hybrid_infer.reports import _colour, _doctor, _tables

    with _progress.working("examining this machine"):
        found = _doctor.examine(given.cache_dir)
    if given.json:
        shown = json.dumps(found, indent=2)
    else:
        shown = _doctor.text(found, colour=_colour.wanted(sys.stdout), width=_tables.width(sys.stdout))
    sys.stdout.write(shown + "\n")
    return 1 if found["problems"] else 0


def _run(given: argparse.Namespace) -> int:
    from hybrid_infer.reports import _script

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
    found = _inventory.summaries(store, list(store.entries()))
    new = [each for each in found if each["key"] not in before]
    reasons = {name: counts["fallbacks"] for name, counts in stats().items() if counts["fallbacks"]}
    if given.json:
        found_out = {"path": str(root), "status": status, "stored": new, "eager": reasons}
        sys.stdout.write(json.dumps(found_out, indent=2) + "\n")
        return status
    if new:
        show(new)
    for name, each in reasons.items():
        for reason, calls in each.items():
            sys.stdout.write(f"eagerly: {name}: {reason} ({calls} call{'' if calls == 1 else 's'})\n")
    were = "was" if len(before) == 1 else "were"
    sys.stdout.write(f"{count(len(new))} stored in {root}, where {len(before)} {were} before\n")
    return status


def _suggest(given: argparse.Namespace) -> int:
    from hybrid_infer.reports import _colour, _profile, _suggest, _suggested_view, _tables

    if given.output is not None:
        try:
            _suggest.check_output(given.output)
        except (ValueError, HybridInferError) as fault:
            sys.stderr.write(f"hybrid-infer: {fault}\n")
            return 2
    recording = _profile.Recording()
    elsewhere = contextlib.redirect_stdout(sys.stderr) if given.json else contextlib.nullcontext()
    with recording.on(), _options.process_stance("eager"), elsewhere:
        status = _run(given)
    if not recording.top.children:
        sys.stderr.write("hybrid-infer: the script called no layer of PyTorch or Paddle\n")
        return status or 1
    ours, sys.modules["__main__"] = sys.modules["__main__"], recording.main  # whose functions are looked up by name
    try:
        found = _suggest.of_program(recording, given.time_limit)
    finally:
        sys.modules["__main__"] = ours
    if given.json:
        sys.stdout.write(json.dumps(found.to_dict()) + "\n")
    else:
        width = _tables.width(sys.stdout)
        sys.stdout.write(_suggested_view.text(found, colour=_colour.wanted(sys.stdout), width=width) + "\n")
    if given.output is not None:
        try:
            found.save(given.output)
        except (OSError, ValueError) as fault:  # a program may have changed the folder in which it runs
            sys.stderr.write(f"hybrid-infer: the picture cannot be written: {fault}\n")
            return status or 1
        if not given.json:
            sys.stdout.write(f"\nThe time as a tree: {given.output}\n")
    return status
