"""``hybrid-infer``: what the cache holds, why two static models differ, and upkeep; the rest is in `_commands`."""

from __future__ import annotations

import argparse
import json
import os
import sys
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from hybrid_infer import _options
from hybrid_infer._errors import CacheWarning, HybridInferError
from hybrid_infer.reports import _commands, _help, _inventory, _script, _shortened, _tables, _usage
from hybrid_infer.reports._amounts import age, ago, count, in_bytes, size

_FEW = 8  # ingredients of a key that are shown unasked
_DIGITS = 12  # of a key, where it is shown in a table

_DESCRIPTION = """\
Static models are kept in a directory of yours and reused by every process. Nothing in it is precious: what is missing
is captured and built again at the next call.
"""
_EXAMPLES = """\
examples:
  hybrid-infer cache list                          what is there, most recently used first
  hybrid-infer cache show 3f2a                     one static model; the first digits of its key are enough
  hybrid-infer cache why 3f2a 91c0                 why there are two: which code, weights or guards differ
  hybrid-infer cache prune --max-size 2GB --older-than 30d
  du -sh "$(hybrid-infer cache path)"
  hybrid-infer doctor                              what this machine has, and whether a tiny layer is served
  hybrid-infer suggest --output t.html train.py    what in a program is worth decorating
  hybrid-infer warm serve.py --batch 8             run a program once, to fill the cache

environment:
  HYBRID_INFER_CACHE_DIR        where the cache is
  HYBRID_INFER_CACHE_READONLY   caches that are searched too and never written, one path or several
  HYBRID_INFER_BACKEND          the engine, or several separated by commas, for methods that do not name one
  HYBRID_INFER_STANCE           of the process: default, eager, background or fail_on_compile

exit status: 0 done; 1 something is damaged, not found, or could not be done; 2 wrong usage
"""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; returns the exit status."""
    parser, given = _parser(), argparse.Namespace()
    try:
        given = parser.parse(arguments, json=False, cache_dir=None)
        if not hasattr(given, "run"):
            given.parser.print_help()
            return 2
        if hasattr(given, "as_program"):  # a program of the user's: its warnings and errors are its own
            try:
                return int(given.run(given))
            except _script.Failed as told:
                return told.status
        with _told():
            status: int = given.run(given)
        sys.stdout.flush()
        return status
    except (HybridInferError, OSError) as error:
        if hasattr(given, "as_program"):
            raise
        if isinstance(error, BrokenPipeError):  # the reader has seen enough: `... | head`
            os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
            return 0
        print(f"hybrid-infer: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130


@contextmanager
def _told() -> Iterator[None]:
    """Warnings of the store as lines of their own."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", CacheWarning)
        try:
            yield
        finally:
            for each in dict.fromkeys(str(each.message) for each in caught):
                print(f"warning: {each}", file=sys.stderr)


def _parser() -> _usage.Parser:
    wide = _help.Formatter
    common = _usage.Parser(add_help=False)
    unless = argparse.SUPPRESS  # given before the command: a default of the command's would replace it
    common.add_argument("--json", action="store_true", default=unless, help="print JSON instead of text")
    common.add_argument(
        "--cache-dir", metavar="DIR", type=_directory, default=unless,
        help="another cache than that of this environment",
    )  # fmt: skip

    parser = _usage.Parser(
        "hybrid-infer", description=_DESCRIPTION, epilog=_EXAMPLES, formatter_class=wide, parents=[common]
    )
    parser.set_defaults(parser=parser)
    parser.add_argument("--version", action="version", version=f"hybrid-infer {_version()}")
    rooms = parser.add_subparsers(metavar="COMMAND", title="commands")
    cache = rooms.add_parser(
        "cache", help="See and tidy the cache", description=_DESCRIPTION, epilog=_EXAMPLES, formatter_class=wide,
        parents=[common],
    )  # fmt: skip
    cache.set_defaults(parser=cache)
    commands = cache.add_subparsers(metavar="COMMAND", title="commands")
    parser.rooms = cache.rooms = (rooms, commands)

    def add(
        name: str, run: Callable[[argparse.Namespace], int], text: str, more: str = "", room: Any = commands
    ) -> argparse.ArgumentParser:
        made: argparse.ArgumentParser = room.add_parser(
            name, help=text, description=f"{text}. {more}".strip(), parents=[common]
        )
        made.set_defaults(run=run, parser=made)
        return made

    def whole(made: argparse.ArgumentParser, text: str) -> None:
        made.add_argument("--all", action="store_true", help=f"print {text}")

    add("path", _path, "Print where the cache is")
    add("list", _list, "List the static models", "Most recently used first; KEY is what `show` and `why` take.")
    show = add("show", _show, "Show one static model", "Its guards are the conditions under which it answers a call.")
    show.add_argument("key", metavar="KEY", help="a key, a method key, or the first digits of one")
    whole(show, "every guard and ingredient, however many there are")
    for room in (commands, rooms):  # asked so often that it need not be looked for
        why = add(
            "why", _why, "Tell why there are two static models instead of one",
            "Ingredients are what their method keys are made of (code, shapes of weights, versions); guards are what "
            "was read of the instance and its arguments while the method was traced.", room,
        )  # fmt: skip
        why.add_argument("first", metavar="KEY1", help="a key, or the first digits of one")
        why.add_argument("second", metavar="KEY2", help="another")
        whole(why, "everything that differs, of two methods too")
    add("verify", _verify, "Read every file and compare it with its digest", "What is damaged is set aside; status 1.")
    prune = add(
        "prune", _prune, "Remove what is not needed, never what a process is using",
        "Without options: the least recently used static models beyond 10 GiB, as happens by itself.",
    )  # fmt: skip
    prune.add_argument("--max-size", type=size, metavar="SIZE", help="what may stay: 500MB, 2GB, 1.5GiB")
    prune.add_argument("--older-than", type=age, metavar="AGE", help="remove what was not used for: 12h, 30d, 8w")
    export = add(
        "export", _export, "Write a static model as one ONNX file that holds its weights",
        "The file is run in ONNX Runtime and compared with the model before it is written.", rooms,
    )  # fmt: skip
    export.add_argument("path", metavar="PATH", help="what save() wrote, or another file that load() takes")
    export.add_argument("--onnx", required=True, metavar="FILE", help="the file to write")
    export.add_argument("--method", metavar="NAME", help="which of its methods; its forward if left out")
    _commands.register(add, rooms, _models)
    clear = add(
        "clear", _clear, "Remove every static model that no process is using",
        "What could not be captured or built goes too, and is tried again.",
    )  # fmt: skip
    clear.add_argument("--yes", action="store_true", help="do not ask")
    return parser


def _directory(text: str) -> str:
    try:
        return os.path.abspath(text) if text else text
    except FileNotFoundError as fault:
        problem = f"{text!r} must be an absolute path, as the folder in which the program runs is gone"
        raise argparse.ArgumentTypeError(problem) from fault


def _version() -> str:
    from hybrid_infer import __version__

    return __version__


def _store(given: argparse.Namespace) -> Any:
    from hybrid_infer.cache import Store

    root = Path(given.cache_dir) if given.cache_dir else _options.store_root(_options.Options())
    if given.cache_dir and not root.is_dir():  # that of the environment is made when something is first kept
        raise HybridInferError(f"--cache-dir: there is no directory {given.cache_dir}")
    if root.exists() and not root.is_dir():
        raise HybridInferError(f"{root}, where the cache is to be, is no directory: {_options.REMEDY}")
    try:
        for folder in (root, *(each for each in root.glob("v*") if each.is_dir())):
            os.scandir(folder).close()
    except PermissionError as fault:  # else it would seem to be empty
        raise HybridInferError(f"the cache in {root} cannot be read ({fault.strerror}: {fault.filename})") from fault
    except FileNotFoundError:
        pass
    return Store(root, base=_options.store_bases(root))


# Commands


def _path(given: argparse.Namespace) -> int:
    root = Path(given.cache_dir) if given.cache_dir else _options.store_root(_options.Options())
    if given.json:
        _dump({"path": str(root), "exists": root.is_dir(), "read_only": list(map(str, _options.store_bases(root)))})
    else:
        print(root)
    return 0


def _list(given: argparse.Namespace) -> int:
    store = _store(given)
    found = _inventory.summaries(store, list(store.entries()))
    failures = _inventory.failures(store)
    if given.json:
        _dump({"path": str(store.root), "size": store.size(), "models": found, "failures": failures})
        return 0
    if found:
        _models(found)
        print()
    if any(each["wider"] for each in found):
        print("What is replaced is of no more use: a wider one answers its calls. It stays until room is needed.")
        print()
    if failures:
        print("Not captured or built, and not tried again for a week or until a version changes:")
        rows = [[each["method_key"][:_DIGITS], each["method"], _reason(each)] for each in failures]
        _table(["METHOD KEY", "METHOD", "REASON"], rows)
        print()
    print(f"{count(len(found))}, {in_bytes(store.size())} in {store.root}")
    return 0


def _models(found: list[dict[str, Any]]) -> None:
    rows = [
        [
            each["key"][:_DIGITS], each["method"] or "(of another release)", _takes(each),
            ", ".join(each["plans"]) or "-", in_bytes(each["size"]), ago(each["used"]),
            *(["read-only"] if each["read_only"] else []),
        ]
        for each in found
    ]  # fmt: skip
    _table(["KEY", "METHOD", "INPUTS", "PLANS", ">SIZE", ">USED"], rows)


def _takes(model: Mapping[str, Any]) -> str:
    """Its inputs; of one that is of no more use, which one is used in its place."""
    replaced = f" (replaced by {model['wider'][:_DIGITS]})" if model.get("wider") else ""
    return _shortened.specs(model["inputs"]) + replaced


def _reason(failure: Mapping[str, str]) -> str:
    """With the static model that it is about: another engine than the one that refused it may serve it."""
    made = failure["static_model"]
    return f"static model {made[:_DIGITS]}: {failure['reason']}" if made else failure["reason"]


def _show(given: argparse.Namespace) -> int:
    store = _store(given)
    entries = _inventory.find(store, given.key)
    if given.json:
        _dump([_inventory.details(store, entry) for entry in entries])
        return 0
    if len(entries) > 1:
        print(f"{len(entries)} static models have the method key {entries[0].method}:\n")
        _models(_inventory.summaries(store, entries))
        return 0
    found = _inventory.details(store, entries[0])
    made = ", ".join(f"{name} {version}" for name, version in found["made_with"].items())
    rows = [
        ["key", found["key"]], ["method", found["method"]], ["method key", found["method_key"]],
        ["lies in", found["path"] + (" (read-only)" if found["read_only"] else "")], ["size", in_bytes(found["size"])],
        ["made", f"{ago(found['created'])}{' with ' if made else ''}{made}"], ["last used", ago(found["used"])],
        ["gives", _shortened.specs(found["results"])],
        ["replaced by", found["wider"] and f"{found['wider'][:_DIGITS]}, a wider one, which answers its calls"],
    ]  # fmt: skip
    _table([], [row for row in rows if row[1]])
    guards = [[name, what] for name, what in found["guards"].items()]
    shown = guards if given.all else _shortened.guards(guards)
    _section("Guards: it answers calls with", shown)
    plans = [
        [each["key"][:_DIGITS], each["engine"], each["version"], in_bytes(each["size"]), ago(each["created"])]
        for each in found["plans"]
    ]
    _section("Plans: what engines made of it", plans)
    ingredients = [[k, v[:_DIGITS]] for k, v in found["ingredients"].items()]
    whole = given.all or len(ingredients) <= _FEW
    if whole:
        _section("Ingredients of its method key", ingredients)
    if not whole or len(shown) < len(guards):
        print(f"\n{len(guards)} guards and {len(ingredients)} ingredients of its method key: `--all` shows each")
    return 0


def _why(given: argparse.Namespace) -> int:
    store = _store(given)
    first, second = (_inventory.find(store, key) for key in (given.first, given.second))
    found = _inventory.compare(first[0], second[0])
    # A method key names several: what they have in common can be compared, their guards cannot.
    several = [key for key, entries in ((given.first, first), (given.second, second)) if len(entries) > 1]
    if several:
        found["guards"] = []
    if given.json:
        _dump(found)
        return 0
    heads = [f"{side['key'][:_DIGITS]} ({side['method']})" for side in (found["first"], found["second"])]
    if several:
        heads = [f"{side['method_key'][:_DIGITS]} ({side['method']})" for side in (found["first"], found["second"])]
    methods = [side["method"] for side in (found["first"], found["second"])]
    apart = all(methods) and methods[0] != methods[1]
    if apart:
        print(f"These are two different methods: {methods[0]} and {methods[1]}.")
    gap, left_out = apart, 0
    for name, title in (("ingredients", "Ingredients of the method key"), ("guards", "Guards")):
        rows = [list(each.values()) for each in found[name]]
        if apart and name == "guards" and not given.all:
            rows = []  # of which nothing can be learnt
        if rows:
            shown = rows if given.all else _shortened.differing(rows, len(rows[0]))
            _section(f"{title} that differ", shown, ["", *heads], gap=gap)
            gap, left_out = True, left_out + len(rows) - len(shown)
    if left_out:
        print("\n`--all` shows everything that differs")
    if several and not found["ingredients"]:
        print("Both have one method key, which names several static models: give their own keys to compare guards.")
    elif found["first"]["key"] == found["second"]["key"]:
        print("Both keys are those of one static model.")
    elif not found["ingredients"] and not found["guards"]:
        print("Nothing differs in their method keys and guards: either answers the same calls.")
    return 0


def _verify(given: argparse.Namespace) -> int:
    store = _store(given)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", CacheWarning)  # what is damaged is reported below
        damaged = store.verify()
    sound = sum(1 for _ in _store(given).entries())  # which warns of what it cannot use
    if given.json:
        _dump({"sound": sound, "damaged": [{"path": each.path, "reason": each.reason} for each in damaged]})
        return 1 if damaged else 0
    for each in damaged:
        print(f"damaged: {each.path} {each.reason}")
    aside = "; what was damaged is set aside and will be built again" if damaged else ""
    print(f"{count(sound)} sound, {len(damaged)} damaged{aside}")
    return 1 if damaged else 0


def _prune(given: argparse.Namespace) -> int:
    return _removed(given, _store(given).prune(given.max_size, given.older_than))


def _clear(given: argparse.Namespace) -> int:
    store = _store(given)
    if not given.yes:
        if not sys.stdin.isatty():
            print(f"hybrid-infer: nobody can be asked here: give --yes to remove all in {store.root}", file=sys.stderr)
            return 2
        print(f"Remove all static models in {store.root} ({in_bytes(store.size())})? [y/N] ", end="", file=sys.stderr)
        sys.stderr.flush()
        if sys.stdin.readline().strip().lower() not in ("y", "yes"):
            print("nothing was removed", file=sys.stderr)
            return 1
    return _removed(given, store.clear())


def _export(given: argparse.Namespace) -> int:
    import hybrid_infer

    took, written = hybrid_infer.load(given.path).export_onnx(given.onnx, given.method)
    if given.json:
        _dump({"path": given.onnx, "takes": took.partition(" -> ")[0], "gives": took.partition(" -> ")[2]})
        return 0
    print(f"{given.onnx}: {took}, {written}")
    return 0


def _removed(given: argparse.Namespace, done: Any) -> int:
    if given.json:
        _dump({"removed": done.removed, "freed": done.freed, "in_use": done.in_use})
        return 0
    stayed = f"; {count(done.in_use)} stayed, being in use" if done.in_use else ""
    print(f"removed {count(done.removed)}, {in_bytes(done.freed)}{stayed}")
    return 0


# Output


def _dump(data: Any) -> None:
    print(json.dumps(data, indent=2))


def _section(title: str, rows: list[list[str]], heads: Sequence[str] = (), *, gap: bool = True) -> None:
    """`gap`: an empty line before it, since it is not the first."""
    if rows:
        print(f"\n{title}" if gap else title)
        _table(heads, rows, indent="  ")


def _table(heads: Sequence[str], rows: list[list[str]], indent: str = "") -> None:
    for line in _tables.lines(heads, rows, indent, _tables.width(sys.stdout)):
        print(line)
